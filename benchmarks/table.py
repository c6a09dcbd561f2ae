"""Rows of results as tables of Markdown."""

from __future__ import annotations

import json

from measure import RESULTS, Row

UNKNOWN = "not measured yet"


def rows(file: str) -> dict[str, Row]:
    """The rows of a results file by id; none where nothing was measured yet."""
    path = RESULTS / f"{file}.json"
    return {row["id"]: row for row in json.loads(path.read_text())} if path.exists() else {}


def figure(row: Row | None, digits: int, times: float = 1, unit: str = "") -> str:
    """A figure with its spread over seeds, `times` so much."""
    if row is None:
        return UNKNOWN
    spread = "" if row["spread"] is None else f" ± {times * row['spread']:.{digits}f}"
    return f"{times * row['value']:.{digits}f}{unit}{spread}"


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rule, *lines])
