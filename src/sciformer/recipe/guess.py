"""Guesses of `sciformer new` for all fields: parts, split, model size, training.

    def guess_beads(names, paths, given):
        parts = given.parts(names)
        found = [Found("data.kind", "beads"), *guess.files(parts), *guess.split(parts, count, "strings"), ...]
        return Page("transformer", paths, f"{count:,} strings", notes, "beads/small", found)

    BEADS = guess.Guess(guess_beads)

A field lists the guess in its manifest, `new={"beads": ".new:BEADS"}`; a plugin writes `register("new",
"beads")(BEADS)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from ..data.columns import Array, Lists
from ..data.source import STANDARD_PARTS, Splits
from ..data.split import Split
from ..errors import UserError
from ..errors import list_names as list_names
from .given import Given
from .page import Found, Page

NO_SPLIT = Split(valid=0, test=0)
MIN_SAMPLES = 10  # smallest number of samples to train on
MIN_TEST_SAMPLES = 100  # smallest number of samples to split off a test part
MIN_CLASS_SAMPLES = 10  # smallest number of samples of a class to learn it
MAX_CLASSES = 1000
MIN_STEPS, MAX_STEPS = 100, 20_000
Sizes = Mapping[int, tuple[int, int, int]]
"""Width, depth and heads of a model, by the smallest number of samples."""


@dataclass(frozen=True)
class Guess:
    """Recipe writer of `sciformer new` for files of one kind.

    page        function (names, files, given) -> recipe. `names` are the names from the user, `files` the files found
                by these names, `given` the recipe keys from the user
    find        function that expands names to files (default: paths and globs)
    recognises  function that tests whether a file name alone shows this kind, so that KIND can be omitted
    tagged      whether a class may be written before a name, CLASS:FILE
    """

    page: Callable[[list[str], list[Path], Given], Page]
    find: Callable[[list[str | Path]], list[Path]] | None = None
    recognises: Callable[[str], bool] = lambda name: False
    tagged: bool = False


# Files and their parts


def part_fields(parts: Mapping[str, list[str]]) -> dict[str, Any]:
    """Files of each part, as fields of a `data:` section without a split."""
    more = {part: names for part, names in parts.items() if part not in STANDARD_PARTS}
    files = {"files": parts["train"], **{part: parts[part] for part in ("valid", "test") if part in parts}}
    return {**files, **({"extra_parts": more} if more else {}), "split": NO_SPLIT}


def files(parts: Mapping[str, list[str]], skip_bad_files: bool = False) -> list[Found]:
    """Recipe keys for the files of each part."""
    given, skip = part_fields(parts), "skip" if skip_bad_files else None
    return [
        Found("data.files", given["files"], "relative to the folder in which you train"),
        *(Found(f"data.{part}", given.get(part), "from the file name") for part in ("valid", "test")),
        Found("data.extra_parts", given.get("extra_parts"), "each evaluated by itself"),
        Found("data.bad_files", skip, "some files cannot be read, see above; `stop` refuses them"),
    ]


def open_readable(section: Any) -> tuple[Splits, bool]:
    """Open a section; return its splits and whether unreadable files were skipped."""
    try:
        return section.open(), False
    except UserError as error:
        if "--data.bad_files" not in error.hint:
            raise
        return section.model_copy(update={"bad_files": "skip"}).open(), True


def check_count(count: int, unit: str, notes: Sequence[str] = ()) -> int:
    """Refuse too few samples for training."""
    if count < MIN_SAMPLES:
        hint = " ".join(["Add more files.", *notes[:4]])
        raise UserError(f"training needs at least {MIN_SAMPLES} {unit}, but the files have {count}", hint=hint)
    return count


def split(
    parts: Collection[str], count: int, unit: str, together: str = "", by: str = "", stratify: str = ""
) -> list[Found]:
    """Recipe keys of `data.split` for the parts without their own files.

    together   plural noun of the units that stay in one part, for a comment in the recipe (default: none)
    by         column; samples with equal values of this column stay in one part (default: none)
    stratify   column of the class, for a stratified split (default: none)
    """
    shares = _shares_to_split(parts, count)
    reason = {"valid": "to select the best model", "test": "for the final evaluation"}
    left = [
        Found(f"data.split.{part}", share, reason[part] if share else "too few samples for a test part")
        for part, share in shares.items()
    ]
    if not left:
        return []
    return [
        Found("data.split", None, f"of {count:,} {unit}" + (f"; {together} stay together" if together else "")),
        *left,
        Found("data.split.by", by or None, f"samples with the same `{by}` stay in one part"),
        Found("data.split.stratify", stratify or None, "every part has the same fraction of each class"),
    ]


def _shares_to_split(parts: Collection[str], count: int) -> dict[str, float]:
    """Fraction of the samples for each part without its own files."""
    shares = {"valid": 0.1, "test": 0.1 if count >= MIN_TEST_SAMPLES else 0.0}
    return {part: share for part, share in shares.items() if part not in parts}


# Classes and values


def list_counts(column: Array) -> str:
    """Names and sample numbers of the classes in a column, as text."""
    return list_names(f"{name} ({count:,})" for name, count in zip(*np.unique(column, return_counts=True)))


def rare_classes(column: Array, unit: str) -> list[str]:
    """Note on classes with too few samples; empty if there are none."""
    counts = np.unique(column, return_counts=True)[1]
    rare = int((counts < MIN_CLASS_SAMPLES).sum())
    note = f"{rare} of {len(counts)} classes have fewer than {MIN_CLASS_SAMPLES} {unit}: too few to train and evaluate."
    return [note] if rare else []


def is_discrete(column: Array | Lists) -> bool:
    """Whether each sample of a column is a text or a whole number."""
    if isinstance(column, Lists) or column.ndim != 1:
        return False
    if column.dtype.kind == "f":
        return bool(np.isfinite(column).all() and (column == np.round(column)).all())
    return column.dtype.kind in "biuU"


class Question(NamedTuple):
    """Guessed objective: kind, column of the target, keys, notes."""

    kind: str
    column: str
    found: list[Found]
    notes: list[str] = []  # noqa: RUF012 (a tuple has no state)


Asked = TypeVar("Asked", bound=Any)


def choose(given: Given, ways: Mapping[str, Callable[[], Asked | str]]) -> Asked:
    """Choose the user's objective, or else the first objective suitable for the files.

    ways   kind of objective -> function that returns a `Question`, or a note if the files do not allow this objective.
           The last objective always works
    """
    asked, last = given.get("objective.kind"), list(ways)[-1]
    reasons: list[str] = []
    for kind, way in ways.items():
        if asked is not None and kind != (asked if asked in ways else last):
            continue
        found = way()
        if not isinstance(found, str):
            return cast(Asked, found._replace(notes=[*reasons, *found.notes]))
        reasons += [found] if found else []
    which = f"objective.kind cannot be {asked} for these files" if asked else "no objective was found for these files"
    raise UserError(which, hint=" ".join(reasons), key="objective.kind")


def classify(label: str, why: str) -> Question:
    """Objective `classify` for the classes in a column."""
    found = [Found("objective.kind", "classify", why), Found("objective.label", label, "column of the class")]
    return Question("classify", label, found)


def regress(target: str, why: str) -> Question:
    """Objective `regress` for the values in a column."""
    targets = Found("objective.targets", [target], "columns to predict, one or several")
    return Question("regress", target, [Found("objective.kind", "regress", why), targets])


def masked(unit: str, share: float) -> Question:
    """Objective `masked`: prediction of masked tokens."""
    why = f"masked {unit} are predicted: no labels needed"
    share_found = Found("objective.mask_ratio", share, f"fraction of {unit} that are masked")
    return Question("masked", "", [Found("objective.kind", "masked", why), share_found])


# Sizes


def at_count(table: Mapping[int, Any], count: int) -> Any:
    """Entry of a table {smallest count: entry} with the largest key up to `count`."""
    return table[max(least for least in table if least <= count)]


def model(count: int, unit: str, sizes: Sizes, dropout: float | None = 0.1) -> list[Found]:
    """Recipe keys of the model size, chosen by the number of samples."""
    dim, depth, heads = at_count(sizes, count)
    return [
        Found("model.dim", dim, f"for {count:,} {unit}"),
        Found("model.depth", depth, "blocks"),
        Found("model.heads", heads, f"each of width {dim // heads}"),
        Found("model.dropout", dropout, "against overfitting"),
    ]


def training(
    count: int, epochs: int, batches: Mapping[int, int], best: str | None = None, parts: Collection[str] = ()
) -> list[Found]:
    """Recipe keys for batch size, steps and schedule, by the number of samples.

    batches   {smallest number of samples: batch size}
    best      name of the score for the selection of the best model
    parts     parts with files of their own; the other parts are split off (see `split`)
    """
    batch = at_count(batches, count)
    trained = count * (1 - sum(_shares_to_split(parts, count).values()))
    steps = min(max(epochs * count // batch, MIN_STEPS), MAX_STEPS)
    return [
        Found("train.steps", steps, f"about {steps * batch / trained:.0f} passes over the training part"),
        Found("train.batch", batch),
        *schedule(steps),
        Found("train.best", best, "selects the model to keep"),
    ]


def schedule(steps: int) -> list[Found]:
    """Recipe keys of warmup and evaluation, chosen by the number of steps."""
    every = max(10, -(-steps // 20))
    return [
        Found("train.warmup", max(1, steps // 10), "a tenth of the steps"),
        Found("train.evaluate_every", every, f"{-(-steps // every)} evaluations in all"),
    ]
