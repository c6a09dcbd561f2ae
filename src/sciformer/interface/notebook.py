"""HTML of runs and recipes for notebooks: scores, a loss curve, a recipe as YAML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..run import Run

WIDTH, HEIGHT = 320, 110  # of the loss curve, in pixels
MAX_POINTS = 400  # points of a curve
CURVES = {"loss": "#1f77b4", "valid_loss": "#d95f02"}
NAMES = {"loss": "training", "valid_loss": "validation"}


def run_as_html(run: Run) -> str:
    """HTML of a run: scores, model size and loss curve; all strings are escaped."""
    from ..errors import UserError

    try:
        scores = dict(run.scores)
    except UserError:  # before the first checkpoint, or a damaged model
        scores = {}
    about = run.about
    samples = ", ".join(f"{part} {count:,}" for part, count in dict(about.get("samples", {})).items())
    facts = {
        "recipe": about.get("recipe", ""),
        "parameters": f"{about['parameters']:,}" if "parameters" in about else "",
        "samples": samples,
        "state": "complete" if about.get("complete") else f"step {about.get('last_checkpoint', 0):,}",
    }
    made = [f"<b>Run</b> <code>{html.escape(str(run.path))}</code>", _table(facts.items())]
    if scores:
        made += ["<b>Validation scores</b>", _table((name, f"{value:.4f}") for name, value in scores.items())]
    return f"<div>{''.join(made)}{loss_curve(run.records)}</div>"


def recipe_as_html(recipe: Recipe) -> str:
    """HTML of a recipe as YAML, without the comments on its keys."""
    from ..recipe import document

    values = {name: section for name, section in recipe.to_dict().items() if section}
    text = document.write(values, lambda keys: "")
    tables = {part: f"{table.rows:,} rows in memory" for part, table in recipe.tables.items()}
    return f"<div><b>Recipe</b> {html.escape(recipe.name)}{_table(tables.items())}<pre>{html.escape(text)}</pre></div>"


def _table(rows: Iterable[tuple[str, Any]]) -> str:
    lines = [
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows if value
    ]
    return f"<table>{''.join(lines)}</table>" if lines else ""


def loss_curve(records: Sequence[Mapping[str, Any]]) -> str:
    """Losses of a run against the step, as SVG; empty with fewer than two points."""
    curves = {name: _points(records, name) for name in CURVES}
    points = [point for one in curves.values() for point in one]
    if len(points) < 2:
        return ""
    right = max(step for step, _ in points) or 1
    low, high = min(value for _, value in points), max(value for _, value in points)
    lines = []
    for name, colour in CURVES.items():
        places = " ".join(
            f"{WIDTH * step / right:.1f},{HEIGHT - HEIGHT * (value - low) / ((high - low) or 1):.1f}"
            for step, value in curves[name]
        )
        if places:
            title = f"<title>{NAMES[name]} loss</title>"
            lines.append(f'<polyline points="{places}" fill="none" stroke="{colour}">{title}</polyline>')
    label = f"loss from {low:.4g} to {high:.4g}, steps 0 to {right:,}"
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="-2 -2 {WIDTH + 4} {HEIGHT + 4}"'
    drawn = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" {size}>{"".join(lines)}</svg>'
    return f"<figure>{drawn}<figcaption>{label} (blue: training, orange: validation)</figcaption></figure>"


def _points(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Steps and finite values of the key `name`.

    If a step has several records, the last record counts.
    """
    found = {record["step"]: record[name] for record in records if "step" in record and name in record}
    kept = [(step, float(value)) for step, value in sorted(found.items()) if math.isfinite(value)]
    return kept[:: -(-len(kept) // MAX_POINTS) or 1]
