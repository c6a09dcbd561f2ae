"""Pages of the documentation, run with commands that take seconds."""

import importlib.util
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def load():
    spec = importlib.util.spec_from_file_location("guide_runner", DOCS / "run.py")
    module = sys.modules["guide_runner"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = load()


def changed(words, changes):
    """A command with some options set, whatever the guide has for them; None leaves an option out."""
    for name, value in changes.items():
        if f"--{name}" in words:
            words = [*words[: (at := words.index(f"--{name}"))], *words[at + 2 :]]
        words = words if value is None else [*words, f"--{name}", str(value)]
    return words


def run_page(name, folder, small, blocks):
    """Run a page, each command as `small` makes it: its text, its verbs, the names of the files it wrote."""
    seen = set()

    def heard(words):
        seen.add(words[0])
        return small(words)

    text = (DOCS / name).read_text(encoding="utf-8")
    results = runner.run(DOCS / name, folder, heard)
    assert [result.problem for result in results if result.problem] == []
    assert len(results) == len(runner.BLOCK.findall(text)) >= blocks
    return text, seen, {path.name for path in folder.iterdir()}
