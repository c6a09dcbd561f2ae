"""A measured figure is data: rows are whole, ids are unique, and pages show what the files hold."""

import json
import re

import pytest

import measure
import tables
from tests.paths import ROOT

KEYS = {"id", "value", "unit", "better", "spread", "seeds", "command", "hardware", "versions", "commit"}
FILES = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
ROWS = [row for file in FILES for row in json.loads(file.read_text())]


def test_rows_are_whole_and_ids_unique():
    assert len(ROWS) >= 40
    for row in ROWS:
        assert row.keys() >= KEYS, row["id"]
        assert row["better"] in ("higher", "lower")
        assert isinstance(row["value"], (int, float))
        assert row["commit"] != "unknown"
    assert len({row["id"] for row in ROWS}) == len(ROWS)


def test_pages_show_what_the_files_hold():
    shown = []
    for page in tables.pages():
        text = page.read_text("utf-8")
        assert tables.filled(text) == text, f"{page.name} differs from the results: make tables"
        shown += [match[2] for match in tables.MARKED.finditer(text)]
    assert sorted(shown) == sorted(tables.TABLES)


def test_recipes_carry_the_figures_of_the_results():
    assert tables.MEASURED.read_text("utf-8") == tables.measured(), (
        "measured.json differs from the results: make tables"
    )


def test_commands_in_rows_exist():
    for command in {row["command"] for row in ROWS}:
        script = re.search(r"\S+\.py", command)
        assert (ROOT / script[0]).exists() if script else command.startswith("make ")


def test_recording_replaces_rows_of_the_same_id(tmp_path):
    path = tmp_path / "x.json"
    a, b = "digits.cnn.accuracy", "digits.vit.accuracy"
    measure.record(path, [{"id": b, "value": 1}, {"id": a, "value": 2}])
    measure.record(path, [{"id": b, "value": 3}])
    assert [(row["id"], row["value"]) for row in json.loads(path.read_text())] == [(a, 2), (b, 3)]
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_times_are_taken_in_turns():
    order = []
    calls = {name: (lambda name=name: order.append(name)) for name in "ab"}
    times = measure.interleave(calls, 4, "cpu")
    assert {name: len(taken) for name, taken in times.items()} == {"a": 4, "b": 4}
    assert order == list("ab" + "ab" + "ba" + "ab" + "ba")
    assert measure.spread(list(range(11))) == pytest.approx([1, 9])
