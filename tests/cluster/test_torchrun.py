"""torchrun as users type it, and the hook that lets it pass --run on."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sciformer
from sciformer.cluster import torchrun
from tests.paths import ROOT
from tests.training.tiny import text_recipe

TRAIN = ["sciformer", "train", "R", "--run", "X"]


@pytest.fixture
def installed(tmp_path):
    """Environment in which the package is installed with the entry points of pyproject.toml, whenever that was."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    about = tmp_path / "site" / f"sciformer-{sciformer.__version__}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sciformer\nVersion: {sciformer.__version__}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in group_points.items())
        for group, group_points in points.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(groups))
    path = os.pathsep.join([str(about.parent), str(Path(sciformer.__file__).parents[1])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


DOCS = re.findall(r"^torchrun .*", (ROOT / "docs/concepts.md").read_text(), re.MULTILINE)
SCRIPT = [str(Path(sys.executable).with_name("torchrun"))]
MODULE = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


@pytest.mark.parametrize("start", [SCRIPT, MODULE])
def test_torchrun_as_typed(tmp_path, installed, start):
    """The line of the docs, with a small recipe."""
    (line,) = DOCS
    _, *words = shlex.split(line)
    (tmp_path / "small.yaml").write_text(text_recipe(tmp_path, train__steps=2).to_yaml())
    words[words.index("train") + 1] = "small.yaml"
    done = subprocess.run(
        [*start, *words], cwd=tmp_path, env=installed, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "runs/digits/run.json").read_text())["ranks"] == 2


@pytest.mark.parametrize(
    ("interpreter", "words", "place"),
    [
        (["python", "/bin/torchrun"], ["/bin/torchrun", "--nproc_per_node", "2", "-m", *TRAIN], 4),
        (["python", "/bin/torchrun"], ["/bin/torchrun", "--no-python", "/bin/sciformer", *TRAIN[1:]], 2),
        (["python", "-m", "torch.distributed.run"], ["-m", "-m", *TRAIN], 2),
        (["python", "/bin/torchrun"], ["/bin/torchrun", "-m", "--", *TRAIN], 0),  # typed already
        (["python", "/bin/torchrun"], ["/bin/torchrun", "train.py", "-m", "sciformer", "--run", "X"], 0),
        (["python", "/bin/torchrun"], ["/bin/torchrun", "-m", "mine", "--run", "X"], 0),
        (["python", "-m", "sciformer"], ["-m", *TRAIN[1:]], None),
        (["python", "mine.py"], ["mine.py", "-m", *TRAIN], None),
        (["python"], [], None),
    ],
)
def test_where_the_dashes_go(interpreter, words, place):
    assert torchrun.is_torchrun(interpreter, words[0] if words else "") == (place is not None)
    if place is not None:
        assert torchrun.find_program(words) == place


def test_only_the_command_line_of_torchrun_is_changed(monkeypatch):
    words = ["mine.py", "-m", *TRAIN]
    monkeypatch.setattr(sys, "argv", list(words))
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    torchrun.separate_options()
    assert sys.argv == words
    monkeypatch.setattr(sys, "argv", ["/bin/torchrun", "-m", *TRAIN])
    torchrun.separate_options()
    torchrun.separate_options()
    assert sys.argv == ["/bin/torchrun", "-m", "--", *TRAIN]
