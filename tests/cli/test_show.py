"""What the command line shows: measured figures, recipes on the shelf, scores."""

import io
import json
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from sciformer.cli import show
from sciformer.cli.terminal import next_steps
from sciformer.recipe import recipes

MADE_UP = {
    "a.number": {"value": 1.46912, "unit": "nats", "spread": 0.0123, "seeds": 3, "hardware": "2 CPU cores, x86"},
    "a.range": {"value": 12.3456, "unit": "ms", "spread": [11.5, 14.02], "seeds": 1, "hardware": "H200"},
    "a.single": {"value": 0.9, "unit": "", "spread": None, "seeds": 1, "hardware": "H200, one of eight"},
    "a.sparse": {"value": 5},
    "a.odd": {"value": 5000000.0, "unit": "tokens/s", "spread": [], "seeds": None, "hardware": None},
}


@pytest.fixture
def figures(tmp_path, monkeypatch):
    """A shelf whose measured figures are made up."""
    (tmp_path / "measured.json").write_text(json.dumps(MADE_UP))
    monkeypatch.setattr(show.importlib.resources, "files", lambda name: tmp_path)


def shown(printer, *arguments, width=80):
    file = io.StringIO()
    printer(*arguments, Console(file=file, width=width))
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.number", "1.469 ± 0.012 nats (a.number; 3 seeds; 2 CPU cores)"),
        ("a.range", "12.35 [11.5, 14.02] ms (a.range; H200)"),
        ("a.single", "0.9 (a.single; H200)"),
        ("a.sparse", "5 (a.sparse)"),
        ("a.odd", "5e+06 tokens/s (a.odd)"),
        ("a.missing", "unmeasured"),
        ("unmeasured", "unmeasured"),
        ("", "unmeasured"),
    ],
)
def test_a_measured_figure_in_words(figures, name, words):
    assert show.describe_measured(name) == words


def test_the_shipped_figures_can_all_be_said():
    found = show.read_measured()
    assert isinstance(found, dict)
    for name, row in found.items():
        assert show.describe_measured(name).startswith(f"{row['value']:.4g}"), name


@pytest.mark.parametrize("width", [80, 200])
def test_the_shelf_fits_the_terminal(width):
    text = shown(show.show_recipes, width=width)
    lines = text.splitlines()
    heads = [line.split("  ")[0] for line in lines if line.partition("  ")[0] in recipes()]
    assert heads == recipes()
    assert all(line == line.rstrip() for line in lines)
    assert max(map(len, lines)) <= width
    assert text.count("paper:") == text.count("data:") == text.count("measured:") == len(recipes())
    assert "\x1b" not in text


def test_commands_for_names_with_spaces_can_be_pasted():
    words = next_steps("sciformer check PATH", "sciformer train PATH", path=Path("my data/stars 1.yaml"))
    lines = [shlex.split(line.removeprefix("next:")) for line in words.splitlines()]
    assert lines == [["sciformer", verb, "my data/stars 1.yaml"] for verb in ("check", "train")]
    assert next_steps("sciformer inspect PATH", path=Path("runs/a")) == "next: sciformer inspect runs/a"


@pytest.mark.parametrize(("count", "words"), [(1, "1 vector"), (2, "2 vectors"), (1200, "1,200 vectors")])
def test_a_number_with_its_noun(count, words):
    assert show.count_words(count, "vector") == words
