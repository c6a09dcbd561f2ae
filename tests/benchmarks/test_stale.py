"""Rows name what they depend on, and are told when that changes."""

import json

import pytest

import stale
from tests.benchmarks.test_results import ROWS
from tests.golden import NAMES
from tests.paths import ROOT


def test_every_row_depends_on_something_that_is_there():
    assert len(ROWS) >= 380
    for row in ROWS:
        assert list(row["depends"]) == stale.depends_on(row["id"]), row["id"]
        assert all(name in NAMES or (ROOT / name).exists() for name in row["depends"]), row["id"]
    guarded = {name for row in ROWS for name in row["depends"]} & {*NAMES}
    assert len(guarded) >= 45


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A repository of a package and a golden run."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "golden.json").write_text('{"runs": {"jets/pfn": {"loss": [1.0]}}}')
    (tmp_path / "src/sciformer/nn/attention").mkdir(parents=True)
    (tmp_path / "src/sciformer/nn/attention/one.py").write_text("x = 1\n")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "attention.py").write_text("y = 1\n")
    monkeypatch.setattr(stale, "ROOT", tmp_path)
    monkeypatch.setattr(stale, "GOLDEN", tmp_path / "tests" / "golden.json")

    def forget():
        stale.golden.cache_clear()
        stale.state_of.cache_clear()

    forget()
    yield tmp_path, forget
    forget()


def test_a_changed_file_or_golden_run_is_told(small):
    folder, forget = small
    speed, score = stale.with_state({"id": "attention_cpu.full"}), stale.with_state({"id": "calibration.jets.error"})
    assert list(score["depends"]) == ["jets/pfn"]
    assert stale.changes_since(speed) == stale.changes_since(score) == []
    (folder / "src/sciformer/nn/attention/two.py").write_text("")
    forget()
    assert stale.changes_since(speed) == ["src/sciformer/nn/attention"]
    assert stale.changes_since(score) == []  # its golden run is the same
    (folder / "benchmarks" / "attention.py").unlink()
    stale.GOLDEN.write_text('{"runs": {"jets/pfn": {"loss": [2.0]}}}')
    forget()
    assert stale.changes_since(speed) == ["src/sciformer/nn/attention", "benchmarks/attention.py"]
    assert stale.changes_since(score) == ["jets/pfn"]


def test_rows_of_before_are_filled_once(small):
    path = small[0] / "rows.json"
    path.write_text('[{"id": "attention_cpu.full"}, {"id": "calibration.jets.error"}]')
    for _ in range(2):
        stale.fill(path)
        speed, score = json.loads(path.read_text())
        assert stale.changes_since(speed) == [*speed["depends"]]  # nobody knows what it was measured with
        assert stale.changes_since(score) == []


def test_a_score_whose_golden_run_agrees_is_kept(small):
    folder, forget = small
    before, path = json.loads(stale.GOLDEN.read_text())["runs"], folder / "rows.json"
    path.write_text('[{"id": "calibration.jets.error"}]')
    stale.fill(path)
    for loss, kept in ((1.00001, True), (1.01, False)):
        stale.GOLDEN.write_text(f'{{"runs": {{"jets/pfn": {{"loss": [{loss}]}}}}}}')
        forget()
        assert stale.carry(path, before) == kept
        assert stale.changes_since(json.loads(path.read_text())[0]) == ([] if kept else ["jets/pfn"])
        before = stale.golden() if kept else before


PLAIN = 'x="#nocomment"deff():ifx:raiseError(,key="x")returnx'


def test_words_do_not_make_a_speed_stale():
    code = (
        '"""A module."""\n\nx = "# no comment"  # a comment, µ\n\n\n'
        'def f():\n    """Long\n\n    words."""\n    if x:\n'
        '        raise Error(f"{x} is too µ small", key="x")\n    return x\n'
    )
    other = (
        '"""Another."""\nx = "# no comment"\ndef f():\n    # here\n    if x:\n        raise Error(\n'
        '            f"µ must be larger than {x + 1}"\n            " here", key="x",\n        )\n    return x\n'
    )
    assert stale.code_of(code) == stale.code_of(other) == PLAIN
    for old, new in (("return x", "return x + 1"), ('key="x"', 'key="y"'), ("if x", "if not x")):
        assert stale.code_of(code.replace(old, new)) != stale.code_of(code)
