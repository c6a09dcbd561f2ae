"""What the command line shows: recipes on the shelf, scores of a run, tables of answers."""

from __future__ import annotations

import csv
import importlib.resources
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .errors import UserError
from .recipe import describe
from .recipe import recipes as names

if TYPE_CHECKING:
    from .evaluate import Judgement
    from .run import Run


def measured() -> dict[str, dict[str, Any]]:
    """The measured figures by id, as they were when this version was made."""
    path = importlib.resources.files("sciformer") / "recipes" / "measured.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return found


def figure(name: str) -> str:
    """A measured figure in words, or the word unmeasured."""
    row = measured().get(name)
    if row is None:
        return "unmeasured"
    spread = row.get("spread")
    more = f" ± {spread:.2g}" if isinstance(spread, float) and row.get("seeds", 1) > 1 else ""
    return f"{row['value']:.4g}{more} {row['unit']} ({name.rpartition('.')[2]}; {row['hardware'].partition(',')[0]})"


def show_recipes(console: Console) -> None:
    """Every shipped recipe with what is known of it."""
    for name in names():
        about = describe(name)
        console.print(Text(name, style="bold") + Text(f"  {about.title or ''}", style="not bold"))
        for head, words in (("paper", about.paper), ("data", about.data), ("measured", figure(about.score or ""))):
            if words:
                console.print(Text(f"    {head + ':':10}{words}"))
    console.print("\nsciformer recipes NAME lists the keys of one; sciformer train NAME runs it", markup=False)


def show_scores(found: Judgement, console: Console) -> None:
    """The scores of a judgement."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("score")
    table.add_column("value", justify="right")
    for name, value in found.scores.items():
        table.add_row(Text(name), f"{value:.6g}")
    console.print(table)


def show_run(run: Run, console: Console) -> None:
    """What a training found, where it lies, and what to try next."""
    path = run.path / "scores.json"
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    parts: dict[str, dict[str, float]] = {name: part["scores"] for name, part in kept.get("parts", {}).items()}
    if parts:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("")
        for part in parts:
            table.add_column(part, justify="right")
        for name in next(iter(parts.values())):
            values = (parts[part].get(name) for part in parts)
            table.add_row(Text(name), *("" if value is None else f"{value:.4f}" for value in values))
        console.print(table)
    console.print(_finding(kept.get("along") or {}), markup=False, end="")
    if run.folder.report.exists():
        console.print(f"report: {run.folder.report}", markup=False)
    decoder = run.recipe.model.kind == "decoder"
    more = f'sciformer generate {run.path} --prompt "..."' if decoder else f"sciformer inspect {run.path}"
    console.print(f"next: {more}", markup=False)


def _finding(along: dict[str, Any]) -> str:
    """Where the answer changes along a column, in a sentence."""
    if along.get("crossing") is None:
        return ""
    error = along.get("error")
    sentence = f"The answer changes at {along['column']} {along['crossing']:.4f}" + (f" ± {error:.4f}" if error else "")
    if along.get("reference") is not None:
        sentence += f"; known: {along['reference']:.6g}, off by {abs(along['crossing'] - along['reference']):.4f}"
    return sentence + ".\n"


def write_answers(path: Path, answers: dict[str, Any]) -> int:
    """A table of answers as .csv or .npz; returns the number of samples."""
    import numpy as np

    from .data.readers.lattices import write_table

    count = len(next(iter(answers.values()))) if answers else 0
    if path.suffix == ".npz":
        write_table(path, {name: np.asarray(column) for name, column in answers.items()})
        return count
    if path.suffix != ".csv":
        raise UserError("a file named .csv or .npz", str(path))
    columns: dict[str, Any] = {}
    for name, column in answers.items():
        values = np.asarray(column)
        if values.ndim == 1:
            columns[name] = values
        else:
            flat = values.reshape(len(values), -1)
            columns |= {f"{name}_{i}": flat[:, i] for i in range(flat.shape[1])}
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(column.tolist() for column in columns.values())))
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"room for {path}", f"{error}", "Free some space, or name another place.") from error
    return count
