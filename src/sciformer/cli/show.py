"""Terminal output: the list of recipes and the scores of a run."""

from __future__ import annotations

import importlib.resources
import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import one_of
from ..recipe import describe, recipes
from .terminal import next_steps

if TYPE_CHECKING:
    from ..run import Run


def read_measured() -> dict[str, dict[str, Any]]:
    """Measured scores of the shipped recipes, by the id of the score."""
    path = importlib.resources.files("sciformer.recipe") / "measured.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return found


def describe_measured(name: str) -> str:
    """Measured score of a recipe (value, spread, seeds, hardware), or `unmeasured`."""
    row = read_measured().get(name)
    if row is None:
        return "unmeasured"
    hardware = str(row.get("hardware") or "").partition(",")[0]
    seeds = f"{row['seeds']} seeds" if (row.get("seeds") or 1) > 1 else ""
    about = "; ".join(word for word in (name, seeds, hardware) if word)
    value = f"{row['value']:.4g}{_format_spread(row.get('spread'))}"
    return " ".join(word for word in (value, row.get("unit"), f"({about})") if word)


def _format_spread(spread: float | list[float] | None) -> str:
    if isinstance(spread, list):
        return f" [{spread[0]:.4g}, {spread[-1]:.4g}]" if spread else ""
    return f" ± {spread:.2g}" if spread else ""


def show_recipes(console: Console) -> None:
    """Print title, paper, data and measured score of every shipped recipe."""
    for name in recipes():
        about = describe(name)
        console.print(Text(name, style="bold") + Text(f"  {about.title or ''}", style="not bold"))
        facts = {"paper": about.paper, "data": about.data, "measured": describe_measured(about.score or "")}
        for head, words in facts.items():
            lines = textwrap.wrap(words or "", max(20, console.width - 14))
            for number, line in enumerate(lines):
                console.print(Text(f"    {'' if number else head + ':':10}{line}"))
    console.print("\nsciformer recipes NAME lists its keys; sciformer train NAME trains it", markup=False)


def evaluate_run(
    run: Run, part: str | None, files: Sequence[Path], console: Console, accept_drift: bool = False
) -> None:
    """Print the scores of the best model on files or on a part of the data."""
    from ..metrics.bootstrap import TOO_FEW, TOO_FEW_NOTE, format_interval, too_few_samples

    parts: dict[str, int] = run.about.get("samples", {})
    part = choose_part(run, part, files)
    found = run.evaluate(part, files, accept_drift=accept_drift)
    words = f"{', '.join(map(str, files)) if files else f'the part {part}'}, {count_words(found.size, 'sample')}"
    if found.windows > found.size:
        words += f" in {count_words(found.windows, 'window')}"
    if not files and "test" not in parts:
        known = "the model was trained on these samples; see data.split"
        words += f" ({known if part == 'train' else 'there is no test part'})"
    for note in found.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    console.print(f"scores on {words}", markup=False, soft_wrap=True)
    objective = run.assembly.objective
    few, ranges = too_few_samples(found.outputs, objective.chosen()), objective.score_intervals(found.outputs)
    scores = [
        [name, TOO_FEW if name in few else f"{value:.6g}", format_interval(ranges.get(name))]
        for name, value in found.scores.items()
    ]
    console.print(plain_table(["score", "value", "95 % interval"], scores))
    if few:
        console.print(f"note: {TOO_FEW_NOTE}", markup=False, soft_wrap=True)
    for rows in objective.details(found.outputs, found.samples).values():
        show_rows(rows, console)


def choose_part(run: Run, part: str | None, files: Sequence[Path]) -> str:
    """Part of the data to evaluate: the given part, else test, valid or train."""
    parts: dict[str, int] = run.about.get("samples", {})
    if part is None:
        return next((name for name in ("test", "valid") if name in parts), "train")
    if not files:
        one_of("a part of the data", part, parts, key="--part")
    return part


def evaluate_mask(
    run: Run,
    part: str | None,
    files: Sequence[Path],
    mask: str,
    length: float | None,
    factor: int | None,
    console: Console,
) -> None:
    """Print the scores of a masked model on a task: another mask than in training."""
    from ..evaluation.restore import evaluate_task, make_task

    part = choose_part(run, part, files)
    dataset = run.samples(part, files)
    rows = evaluate_task(run, dataset, make_task(run, mask, length, factor))
    of = ", ".join(map(str, files)) if files else f"the part {part}"
    console.print(f"mask {mask} on {of}, {count_words(len(dataset), 'sample')}", markup=False, soft_wrap=True)
    show_rows(rows, console)


def count_words(count: int, noun: str) -> str:
    """Write a number with its noun: 1 sample, 1,200 samples."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def plain_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Table without lines: first column left-aligned, other columns right-aligned."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, name in enumerate(head):
        table.add_column(Text(name), justify="right" if place else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def show_rows(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Print rows with equal keys as a table; an empty list prints nothing."""
    if not rows:
        return
    cells = [[f"{value:.4f}" if isinstance(value, float) else f"{value}" for value in row.values()] for row in rows]
    console.print()
    console.print(plain_table(list(rows[0]), cells))


def show_run(run: Run, console: Console) -> None:
    """Print scores and report path of a finished training, and a command to run next."""
    from ..generation.samples import makes_samples
    from ..metrics import AtLeast
    from ..models.encoder_decoder import SOURCE

    kept = run.folder.scores()
    parts: dict[str, dict[str, float]] = {
        part: {
            name: AtLeast(value) if name in found.get("bounds", ()) else value
            for name, value in found.get("scores", {}).items()
        }
        for part, found in kept.get("parts", {}).items()
    }
    if parts:
        rows = [
            [name, *(_cell(parts[part].get(name), name in kept["parts"][part].get("too_few", ())) for part in parts)]
            for name in next(iter(parts.values()))
        ]
        console.print(plain_table(["", *parts], rows))
    console.print(_describe_crossing(kept.get("along") or {}), markup=False, end="")
    if run.folder.report.exists():
        console.print(f"report: {run.folder.report}", markup=False)
    more = "".join(f" --plugin {one['name']}" for one in run.about.get("plugins", []))
    usage = run.assembly.objective.usage.replace("RUN", "PATH")
    if makes_samples(run):
        prompt = ' --prompt "..."' if SOURCE in run.assembly.tokens else ""
        usage = f"sciformer generate PATH{prompt} --out FOLDER"
    console.print(
        next_steps(usage + more, f"sciformer inspect PATH{more}", path=run.path), markup=False, soft_wrap=True
    )


def _cell(value: float | None, too_few: bool) -> str:
    from ..metrics.bootstrap import TOO_FEW

    return "" if value is None else TOO_FEW if too_few else f"{value:.4f}"


def _describe_crossing(along: dict[str, Any]) -> str:
    if along.get("crossing") is None:
        return ""
    sentence = f"The prediction changes at {along['column']} {along['crossing']:.4f}"
    if along.get("error"):
        sentence += f" ± {along['error']:.4f}"
    if along.get("reference") is not None:
        sentence += f"; known: {along['reference']:.6g}, off by {abs(along['crossing'] - along['reference']):.4f}"
    return sentence + ".\n"
