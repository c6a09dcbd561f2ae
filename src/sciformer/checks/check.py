"""Check a recipe before a long run: keys, files, tokens, a step, time, memory.

    checked = check(Recipe.load("text/gpt-char", {"data.files": ["input.txt"]}))
    checked.problems                    list of sentences with hints, empty if the recipe is ready

Nothing is written, except the cache of a reader (simulated data) and a new list of hashes.
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
from ..errors import UserError, list_names
from ..recipe import Recipe
from ..recipe.document import RecipeError
from ..recipe.plugin import Plugin
from ..recipe.registry import is_own
from ..testing import check_tokens
from ..training.distributed import Ranks, find_device
from ..training.finetune import load_pretrained
from ..training.folder import Folder
from ..training.step import bad_samples, nonfinite_rows
from .estimate import try_training
from .hashes import compare_hashes

MAX_CHECKED_SAMPLES = 2048  # samples checked per part, without `deep`
MAX_TEXT_LETTERS = 256  # characters of a text in the table for the conformance tests


@dataclass
class Checked:
    """Result of a check: problems, notes, facts and figures.

    problems   errors to correct before training
    notes      warnings
    facts      findings in words, by group and name
    figures    findings as numbers
    """

    name: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    bad: dict[str, list[int]] = field(default_factory=dict)
    """Samples of each part whose tokens contain NaN or infinity."""

    def fact(self, group: str, name: str, words: str) -> None:
        """Store a fact, `words`, under its name in a group of facts."""
        self.facts.setdefault(group, {})[name] = words

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """Context manager: record an exception as a problem; `what` names the step."""
        try:
            yield
        except RecipeError as error:
            self.problems += error.problems
        except UserError as error:
            self.problems.append(f"{what}: {error}")
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"line {last.lineno} of {last.filename}"
            self.problems.append(f"{what}: {type(error).__name__}: {error} ({place})")


def check(
    recipe: Recipe | str | Path,
    plugins: Sequence[Plugin] = (),
    deep: bool = False,
    *,
    run: str | Path = "runs",
    hashes: Path | None = None,
    log: Callable[[str], None] = log_nothing,
) -> Checked:
    """Check a recipe on its device and data; problems are collected instead of raised.

    plugins  loaded plugins; their tokens are tested with the whole conformance suite
    deep     check all samples of every part (default: only the first 2048)
    run      folder of the planned run: its disk must have space for the checkpoints
    hashes   list of the hashes of the data files: compared with the files, or written if it does not exist
    """
    checked = Checked(recipe.name if isinstance(recipe, Recipe) else str(recipe))
    with checked.trying("the recipe"):
        recipe = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe)
        tokens = ", ".join(stream.kind for stream in recipe.streams.values())
        kinds = (recipe.data.kind, tokens, recipe.model.kind, recipe.objective.kind)
        facts = {"name": recipe.name, "title": recipe.about.title, "made of": " · ".join(kinds)}
        facts["plugins"] = ", ".join(plugin.name for plugin in plugins)
        checked.facts["Recipe"] = {name: words for name, words in facts.items() if words}
        with checked.trying("the data"):
            recipe, pretrained = load_pretrained(recipe, Folder(run))
            assembly = Assembly.open(recipe, log=log, pretrained=pretrained)
            _data(checked, assembly, deep)
            if hashes is not None and assembly.splits is not None:
                problems, notes = compare_hashes(hashes, assembly.splits.files)
                checked.problems += problems
                checked.notes += notes
            for stream, section in assembly.tokens.items():
                with checked.trying(f"the tokens `{stream}`"):
                    _tokens(checked, assembly, stream, is_own("tokens", section.kind))
            with checked.trying("a step of the training"), Ranks(find_device(recipe.train.device)) as ranks:
                try_training(checked, assembly, ranks, Path(run), deep, log)
    return checked


# Data and tokens


def _data(checked: Checked, assembly: Assembly, deep: bool) -> None:
    assert assembly.splits is not None
    files = assembly.splits.fingerprint
    shown = [f"{name} ({about.partition(',')[0]})" for name, about in files.items()]
    checked.fact("Data", "from", list_names(shown, 4))
    checked.notes += [*assembly.splits.notes, *assembly.profile_notes]
    for name, words in assembly.data_facts.items():
        checked.fact("Data", name, words)
    parts = assembly.parts()
    for part in parts:
        dataset = assembly.dataset(part)
        count = dataset.samples
        checked.figures[f"samples_{part}"] = count
        if len(dataset) != count:
            checked.figures[f"windows_{part}"] = len(dataset)
        first = dataset.all(None if deep else MAX_CHECKED_SAMPLES)
        lengths = sum((stream.lengths for stream in first.streams.values()), np.zeros(len(first), np.int64))
        words = f"{count:,} samples"
        if len(dataset) != count:
            words += f", cut into {len(dataset):,} windows"
        if len(first):
            low, high = int(np.min(lengths)), int(np.max(lengths))
            words += f" of {low:,} tokens" if low == high else f" of {low:,} to {high:,} tokens"
        checked.fact("Data", part, words)
        if part == "train":
            known = {name: column for name, column in first.samples.items() if name not in ADDED_COLUMNS}
            for name, text in describe(known).items():
                checked.fact("Data", f"column {name}", text)
        if count and int(np.min(lengths)) == 0:
            checked.notes.append(f"{int((lengths == 0).sum())} {dataset.unit} of {part} have no tokens.")
        _count_bad_samples(checked, part, first, dataset.unit)
    if "valid" not in parts:
        checked.notes.append("There is no part `valid`: the best model is selected on training data. See data.split.")
    batch, train = assembly.recipe.train.batch, assembly.dataset("train")
    if tokens := assembly.recipe.train.tokens:
        if over := int((train.widths - assembly.objective.lookahead > tokens).sum()):
            note = f"{over} {train.unit} have more tokens than train.tokens: each forms a batch of its own."
            checked.notes.append(note)
    elif batch > len(train) and not assembly.objective.needs_all:
        checked.notes.append(f"train.batch is {batch}, but the training part has only {len(train)} {train.unit}.")


def _count_bad_samples(checked: Checked, part: str, first: Batch, unit: str) -> None:
    """Add notes on samples with NaN or infinity."""
    tokens = bad_samples(Batch(first.streams, {}, first.ids))
    if tokens:
        checked.bad[part] = tokens
        words = f"{len(tokens)} of {len(first)} {unit} of {part} contain NaN or infinity"
        checked.notes.append(f"{words}; the first is {unit[:-1]} {tokens[0]}.")
    for name, column in first.samples.items():
        if number := int(nonfinite_rows(column).sum()):
            checked.notes.append(f"Column `{name}` is not finite in {number} {unit} of {part}.")


def _tokens(checked: Checked, assembly: Assembly, stream: str, own: bool) -> None:
    assert assembly.splits is not None
    source = assembly.splits.sources["train"]
    table = _small_table(source.load(0), 8 if own else 4)
    if table is None:
        return
    section = assembly.tokens[stream]
    columns = [column.values if isinstance(column, Lists) else column for column in table.values()]
    rough = any(nonfinite_rows(column).any() for column in columns)
    missing = list(section.tokenize(table).columns) if rough or not own else []  # ours may lack a column: errors
    found = check_tokens(section, table, missing=missing, draw=own)
    checked.problems += [f"tokens {problem}" for problem in found]
    words = f"{len(found)} conformance tests failed" if found else "all conformance tests passed"
    checked.fact("Tokens", f"{stream}: {section.kind}", words + (" (from a plugin)" if own else ""))


def _small_table(table: Table, count: int) -> dict[str, Any] | None:
    """First `count` samples of a table, with truncated texts.

    A shorter table is repeated.
    """
    if not rows_of(table):
        return None
    small: dict[str, Any] = dict(select(table, np.arange(count) % rows_of(table)))
    for name, column in small.items():
        if not isinstance(column, Lists) and column.dtype == object:
            ends = [MAX_TEXT_LETTERS - 32 * i for i in range(count)]
            cut = (text[:end] if isinstance(text, str) else text for text, end in zip(column, ends))
            small[name] = np.fromiter(cut, object, count)
    return small


def show_check(checked: Checked, console: Console) -> None:
    """Print facts, notes and problems, and whether the recipe is ready to train."""
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
        console.print(Text(f"{number} {'problem' if number == 1 else 'problems'} to correct", style="bold red"))
    else:
        console.print(Text("ready to train", style="bold green"))
