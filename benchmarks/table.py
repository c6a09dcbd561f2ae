"""Markdown tables of rows of results."""

from __future__ import annotations

import json

from measure import RESULTS, Row

UNKNOWN = "not measured yet"


def rows(file: str) -> dict[str, Row]:
    """Rows of a results file by id; empty if there are no results yet."""
    path = RESULTS / f"{file}.json"
    return {row["id"]: row for row in json.loads(path.read_text())} if path.exists() else {}


def figure(row: Row | None, digits: int, times: float = 1, unit: str = "") -> str:
    """Value with its spread over seeds.

    times   factor for both
    """
    if row is None:
        return UNKNOWN
    spread = "" if row["spread"] is None else f" ± {times * row['spread']:.{digits}f}"
    return f"{times * row['value']:.{digits}f}{unit}{spread}"


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """Markdown table: the first column is text, the others are numbers."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rule, *lines])
