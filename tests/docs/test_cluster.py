"""The guide to clusters runs, and the job file on it is the one that is printed."""

import re
import shlex

import pytest

from sciformer._version import __version__
from sciformer.cli.main import main
from tests.docs.commands import DOCS, changed, run_page

TEXT = (DOCS / "cluster.md").read_text(encoding="utf-8")
LATTICES = {"data.size": 8, "data.number": 8, "data.chains": 4, "data.samples": 2}
TINY = {"train": LATTICES | {"model.dim": 16, "train.steps": 4, "train.batch": 8}}
TINY["simulate"] = {key.removeprefix("data."): value for key, value in LATTICES.items()}


@pytest.mark.usefixtures("_without_drawing")
def test_the_page_runs(tmp_path):
    _, seen, made = run_page("cluster.md", tmp_path, lambda words: changed(words, TINY.get(words[0], {})), 6)
    assert seen == {"submit", "train", "status", "simulate", "predict"}
    assert {"scores", "scores.parquet", "runs"} <= made
    assert (tmp_path / "runs/condor/logs/job.sh").exists()


def test_the_job_file_on_the_page_is_the_one_that_is_printed(tmp_path, here, capsys):
    (shown,) = re.findall(r"^```\n(#!/bin/bash\n.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    (block,) = re.findall(r"^(sciformer submit .*?--kind slurm --model.depth 4)$", TEXT, re.MULTILINE | re.DOTALL)
    assert main(shlex.split(block.replace("\\\n", ""))[1:]) == 0
    printed = capsys.readouterr().out.replace(str(tmp_path), "/home/ada/ising").replace(__version__, "VERSION")
    assert printed == shown
