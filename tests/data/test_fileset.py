from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.fileset import FilePlan, FileSet, Scan, Seen, deal, stretches
from sciformer.errors import UserError
from tests.errors import refuses


def scans(sizes, tags, edge, kept):
    """Scans of files of these sizes, with a fraction of the rows kept."""
    rng = np.random.default_rng(0)
    for number, size in enumerate(sizes):
        rows = np.flatnonzero(rng.random(size) < kept)
        edges = np.unique([*range(0, size, edge), size])
        yield Scan(Path(f"{number}"), f"t{number % tags}" if tags else "", size, edges, rows), rows


def numbers(rows):
    inside = np.arange(rows.stop - rows.start) if rows.kept is None else rows.kept
    return [(rows.path, int(rows.start + number)) for number in inside]


files = st.lists(st.integers(0, 400), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None)
@given(
    files, st.integers(0, 5), st.integers(1, 200), st.sampled_from([0.1, 0.8, 1.0]), st.integers(16, 300), st.booleans()
)
def test_every_sample_is_in_one_piece(sizes, tags, edge, kept, piece, mixed):
    parts = list(scans(sizes, tags, edge, kept))
    pieces = deal(parts, piece, mixed)
    found = [number for some in pieces for rows in some for number in numbers(rows)]
    expected = [(scan.path, int(row)) for scan, rows in parts for row in rows]
    assert Counter(found) == Counter(expected)
    if not mixed:
        assert found == expected
    for some in pieces:
        assert sum(map(len, some)) <= 1.5 * piece + len(parts)
        assert all(len(rows) and rows.stop - rows.start <= 1.5 * piece + 1 for rows in some)


def test_every_piece_has_its_share_of_every_tag():
    parts = list(scans([900, 100, 500, 1000, 500], 0, 70, 0.8))
    parts = [(Scan(s.path, tag, s.rows, s.edges, s.kept), rows) for (s, rows), tag in zip(parts, "aabbc")]
    pieces = deal(parts, 400)
    assert len(pieces) == 6
    for some in pieces:
        counts = Counter(rows.tag for rows in some for _ in range(len(rows)))
        total = sum(counts.values())
        shares = {tag: round(count / total, 1) for tag, count in counts.items()}
        assert shares == {"a": 0.3, "b": 0.5, "c": 0.2}


def test_many_files_are_dealt_by_chance():
    parts = list(scans([100] * 100, 0, 100, 1.0))
    first = [int(str(rows.path)) for rows in deal(parts, 400)[0]]
    assert len(first) >= 16
    assert np.ptp(first) > 60  # not neighbours only


def test_runs_end_where_reading_can_begin():
    assert list(stretches(np.array([0, 30, 70, 100]), 100, 50)) == [(0, 30), (30, 70), (70, 100)]
    assert list(stretches(np.array([0, 100]), 100, 40)) == [(0, 40), (40, 80), (80, 100)]
    assert list(stretches(np.array([0, 10, 100]), 100, 1000)) == [(0, 100)]
    parts = list(scans([1000], 0, 240, 1.0))
    ends = [rows.stop for some in deal(parts, 250) for rows in some]
    assert ends == [240, 480, 720, 1000]


class Clip:
    """A file of numbers; each number is a sample."""

    def __init__(self, path):
        self.values = np.array(path.read_text().split(), float)
        self.rows, self.edges = len(self.values), np.array([0, len(self.values)])


@dataclass(frozen=True)
class ClipPlan(FilePlan):
    wishes: tuple[str, ...] = ()
    least: float = 0.0

    def open(self, path):
        try:
            return Clip(path)
        except ValueError as error:
            raise UserError(f"{path} has words", file=path) from error

    def look(self, file, tag, start, stop, counts):
        quiet = file.values[start:stop] < self.least
        counts["quiet"] += int(quiet.sum())
        rows = np.flatnonzero(~quiet)
        return Seen(rows, {"label": np.full(len(rows), tag)}, {}, {"value", "label"})

    def load(self, scan, rows):
        return {"value": self.open(scan.path).values[rows.numbers], "label": np.full(len(rows), rows.tag)}

    def aligned(self):
        return replace(self, least=-np.inf)


class Clips(FileSet):
    what = "clips"
    labels_per_class: int | None = None

    def plan(self, training):
        return ClipPlan()

    def describe_counts(self, counts, total, kept, whose):
        return [f"{counts['quiet']} of {total} are quiet{whose}."]


def test_a_reader_of_another_field_says_only_what_a_file_is(tmp_path):
    for name, text in {"a": "1 2 -3 4 5 6", "b": "7 8 9 -1", "c": "10 11", "bad": "1 x"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    a, b, c, bad = (f"{name}:{tmp_path}/{name}.txt" for name in ("a", "b", "c", "bad"))
    data = Clips(kind="clips", files=[a, b, bad], test=[c], bad_files="skip", split={"valid": 0.25}, labels_per_class=2)
    opened = data.open()
    found = {part: source.load(0) for part, source in opened.sources.items()}
    assert {part: len(table["value"]) for part, table in found.items()} == {"train": 4, "valid": 2, "test": 2}
    assert opened.notes == [
        f"left out {tmp_path}/bad.txt: {tmp_path}/bad.txt has words.",
        "2 of 10 are quiet.",
        "0 of 2 are quiet of test.",
    ]
    assert list(opened.fingerprint) == [f"{tmp_path}/{name}.txt" for name in "abc"]
    np.testing.assert_array_equal(opened.sources["train"].known_column("label"), found["train"]["label"])
    assert data.read([a, b]).load(0)["value"].tolist() == [1, 2, 4, 5, 6, 7, 8, 9]
    assert data.aligned([a, b]).load(0)["value"].tolist() == [1, 2, -3, 4, 5, 6, 7, 8, 9, -1]
    with refuses(file=tmp_path / "bad.txt"):
        data.read([bad])
