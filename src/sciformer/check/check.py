"""A recipe tried out before a long run: keys, files, tokens, one real step, time, memory and disk.

    checked = check(Recipe.load("text/gpt-char", {"data.files": ["input.txt"]}))
    checked.problems                    sentences, each with what to do; none: ready

Nothing is written but what a reader keeps for itself (a cache of simulated data).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ..assembly import Assembly, log_nothing
from ..data.batch import Batch, describe
from ..data.columns import Lists, Table, rows_of, select
from ..data.dataset import ADDED_COLUMNS
from ..errors import UserError
from ..recipe import Recipe
from ..recipe.document import RecipeError
from ..recipe.plugin import Plugin
from ..recipe.registry import is_own
from ..testing import check_tokens
from ..train.distributed import Ranks, find_device
from ..train.finetune import load_pretrained
from ..train.folder import Folder
from ..train.step import bad_samples
from .estimate import try_training

MAX_CHECKED_SAMPLES = 2048  # of each part that are looked at, unless all are
MAX_TEXT_LETTERS = 256  # of a text in the small table for tokens


@dataclass
class Checked:
    """What was found: sentences about what must and what may be mended, facts in words, figures as numbers."""

    name: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    bad: dict[str, list[int]] = field(default_factory=dict)
    """Samples of each part whose tokens hold a number that is not finite."""

    def fact(self, group: str, name: str, words: str) -> None:
        """Keep a fact under its group."""
        self.facts.setdefault(group, {})[name] = words

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """Turn what goes wrong inside into a problem."""
        try:
            yield
        except RecipeError as error:
            self.problems += error.problems
        except UserError as error:
            self.problems.append(f"{what}: {error}")
        except Exception as error:
            self.problems.append(f"{what}: {type(error).__name__}: {error}{_error_place(error)}")


def check(
    recipe: Recipe | str | Path,
    plugins: Sequence[Plugin] = (),
    deep: bool = False,
    *,
    run: str | Path = "runs",
    log: Callable[[str], None] = log_nothing,
) -> Checked:
    """Try a recipe out, on the device and the data it names; what is wrong is collected, not raised.

    plugins  the users' files that were loaded; tokens from them go through the whole conformance suite
    deep     look at every sample of every part, not at the first ones
    run      where the run would be: its disk must have room for the checkpoints
    """
    checked = Checked(recipe.name if isinstance(recipe, Recipe) else str(recipe))
    with checked.trying("the recipe"):
        recipe = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe)
        _recipe(checked, recipe, plugins)
        with checked.trying("the data"):
            recipe, pretrained = load_pretrained(recipe, Folder(run))
            assembly = Assembly.open(recipe, log=log, pretrained=pretrained)
            _data(checked, assembly, deep)
            for stream, section in assembly.tokens.items():
                with checked.trying(f"the tokens `{stream}`"):
                    _tokens(checked, assembly, stream, is_own("tokens", section.kind))
            with checked.trying("a step of the training"), Ranks(find_device(recipe.train.device)) as ranks:
                try_training(checked, assembly, ranks, Path(run), deep, log)
    return checked


def _recipe(checked: Checked, recipe: Recipe, plugins: Sequence[Plugin]) -> None:
    checked.fact("Recipe", "name", recipe.name)
    if recipe.about.title:
        checked.fact("Recipe", "title", recipe.about.title)
    tokens = ", ".join(stream.kind for stream in recipe.streams.values())
    checked.fact("Recipe", "made of", f"{recipe.data.kind} · {tokens} · {recipe.model.kind} · {recipe.objective.kind}")
    if plugins:
        checked.fact("Recipe", "plugins", ", ".join(plugin.name for plugin in plugins))


# Data and tokens


def _data(checked: Checked, assembly: Assembly, deep: bool) -> None:
    assert assembly.splits is not None
    files = assembly.splits.fingerprint
    shown = [f"{name} ({about.partition(',')[0]})" for name, about in list(files.items())[:4]]
    checked.fact("Data", "from", ", ".join(shown) + (f" and {len(files) - 4} more" if len(files) > 4 else ""))
    checked.notes += assembly.splits.notes
    parts = assembly.parts()
    for part in parts:
        dataset = assembly.dataset(part)
        count = len(dataset)
        checked.figures[f"samples_{part}"] = count
        first = dataset.all(None if deep else MAX_CHECKED_SAMPLES)
        lengths = sum((stream.lengths for stream in first.streams.values()), np.zeros(len(first), np.int64))
        words = f"{count:,} samples"
        if len(first):
            low, high = int(np.min(lengths)), int(np.max(lengths))
            words += f" of {low:,} tokens" if low == high else f" of {low:,} to {high:,} tokens"
        checked.fact("Data", part, words)
        if part == "train":
            known = {name: column for name, column in first.samples.items() if name not in ADDED_COLUMNS}
            for name, text in describe(known).items():
                checked.fact("Data", f"column {name}", text)
        if count and int(np.min(lengths)) == 0:
            checked.notes.append(f"{int((lengths == 0).sum())} samples of {part} have no tokens.")
        _count_bad_samples(checked, assembly, part, first)
    if "valid" not in parts:
        checked.notes.append("There is no part `valid`: the best model is chosen on training data. See data.split.")
    batch, count = assembly.recipe.train.batch, len(assembly.dataset("train"))
    if tokens := assembly.recipe.train.tokens:
        if over := int((assembly.dataset("train").widths - assembly.objective.lookahead > tokens).sum()):
            checked.notes.append(f"{over} samples have more tokens than train.tokens: each is a batch of its own.")
    elif batch > count:
        checked.notes.append(
            f"train.batch is {batch}, but there are {count} samples to train on: batches have {count}."
        )


def _count_bad_samples(checked: Checked, assembly: Assembly, part: str, first: Batch) -> None:
    """Count samples with numbers that are not finite; whether a model bears those of tokens, the step shows."""
    tokens = bad_samples(Batch(first.streams, {}, first.ids))
    if tokens:
        checked.bad[part] = tokens
        checked.notes.append(
            f"{len(tokens)} of {len(first)} samples of {part} hold NaN or infinity, the first is sample {tokens[0]}."
        )
    for name, column in first.samples.items():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            number = int((~np.isfinite(column.reshape(len(column), -1)).all(1)).sum())
            checked.notes.append(f"Column `{name}` is not finite in {number} samples of {part}.")


def _tokens(checked: Checked, assembly: Assembly, stream: str, own: bool) -> None:
    assert assembly.splits is not None
    source = assembly.splits.sources["train"]
    table = _small_table(source.load(0), 8 if own else 4)
    if table is None:
        return
    section = assembly.tokens[stream]
    rough = any(
        column.values.dtype.kind == "f" and not np.isfinite(column.values).all()
        if isinstance(column, Lists)
        else column.dtype.kind == "f" and not np.isfinite(column).all()
        for column in table.values()
    )
    missing = list(section.tokenize(table).columns) if rough else []
    found = check_tokens(section, table, missing=missing, draw=own)
    checked.problems += [f"tokens {problem}" for problem in found]
    words = f"{len(found)} promises of tokens broken" if found else "every promise of tokens is kept"
    checked.fact("Tokens", f"{stream}: {section.kind}", words + (" (your own)" if own else ""))


def _small_table(table: Table, count: int) -> dict[str, Any] | None:
    """A few samples, texts in them cut short: one long text stands for several."""
    if not rows_of(table):
        return None
    small: dict[str, Any] = dict(select(table, np.arange(count) % rows_of(table)))
    for name, column in small.items():
        if not isinstance(column, Lists) and column.dtype == object:
            cut = np.empty(count, object)
            cut[:] = [
                text[: MAX_TEXT_LETTERS - 32 * i] if isinstance(text, str) else text for i, text in enumerate(column)
            ]
            small[name] = cut
    return small


def show_check(checked: Checked, console: Console) -> None:
    """Print what was found: facts, notes, problems, and whether the training can begin."""
    table = RichTable(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group, facts in checked.facts.items():
        for number, (name, words) in enumerate(facts.items()):
            table.add_row(Text("" if number else group), Text(name), Text(words))
    if checked.facts:
        console.print(table)
    for note in checked.notes:
        console.print(Text("note: ", style="yellow") + Text(note))
    for problem in checked.problems:
        console.print(Text("problem: ", style="bold red") + Text(problem))
    if checked.problems:
        number = len(checked.problems)
        console.print(Text(f"{number} {'problem' if number == 1 else 'problems'} to mend", style="bold red"))
    else:
        console.print(Text("ready to train", style="bold green"))


def _error_place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
