from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.fileset import Scan, deal, stretches


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
