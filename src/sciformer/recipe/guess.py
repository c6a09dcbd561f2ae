"""Guesses shared by all fields: parts, split, model size, training.

    def guess_beads(names, paths):
        parts = guess.group_by_part(names)
        found = [Found("data.kind", "beads"), *guess.files(parts), *guess.split(parts, count, "strings"), ...]
        return Page("transformer", paths, f"{count:,} strings", notes, "beads/small", found)

    BEADS = guess.Guess(guess_beads)

A field lists it in its manifest, `new={"beads": ".new:BEADS"}`; a plugin writes `register("new", "beads")(BEADS)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.columns import Array, Lists
from ..data.source import Splits
from ..data.split import Split
from ..errors import UserError
from .page import Found, Page

PART_WORDS = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("valid", "val", "dev", "validation"), "valid"),
    **dict.fromkeys(("test", "tst", "testing", "eval"), "test"),
}
NO_SPLIT = Split(valid=0, test=0)
MIN_SAMPLES = 10  # samples worth training on
MIN_TEST_SAMPLES = 100  # samples of which some are kept for a test
MIN_CLASS_SAMPLES = 10  # samples of a class that can be learned
MAX_CLASSES = 1000
MAX_LISTED_NAMES = 12
MIN_STEPS, MAX_STEPS = 100, 20_000
Sizes = Mapping[int, tuple[int, int, int]]
"""Width, depth and heads of a model, by the least number of samples."""


@dataclass(frozen=True)
class Guess:
    """How `sciformer new` makes a recipe of files of one kind.

    page        from the names as they were given, and the files that they mean, to a recipe
    find        the files that names mean (default: names, globs)
    recognises  whether a name alone says that it is of this kind, so that the kind may be left out
    tagged      whether a class may stand before a name, CLASS:FILE
    """

    page: Callable[[list[str], list[Path]], Page]
    find: Callable[[list[str | Path]], list[Path]] | None = None
    recognises: Callable[[str], bool] = lambda name: False
    tagged: bool = False


# Files and their parts


def group_by_part(names: Sequence[str]) -> dict[str, list[str]]:
    """Names by part (train, valid, test), if they tell it; a second test is a part.

    Where they lie in several folders (train/pos.txt, test/pos.txt), the names of these tell it too.
    """
    apart = len({Path(name).parent for name in names}) > 1
    own = [_part_in_name(name) for name in names]
    parts = [
        told or (_part_in_name(str(Path(name).parent)) if apart else "") or "train" for told, name in zip(own, names)
    ]
    if len(set(parts)) == 1 or "train" not in parts:
        return {"train": list(names)}
    found: dict[str, list[str]] = {}
    for part, name, told in zip(parts, names, own):
        again = part == told == "test" and part in found
        key = re.sub(r"\W+", "_", Path(name).name.partition(".")[0]) if again else part
        found.setdefault(key, []).append(name)
    return found


def _part_in_name(name: str) -> str:
    return next((PART_WORDS[word] for word in re.split(r"[._-]", Path(name).name.lower()) if word in PART_WORDS), "")


def part_fields(parts: Mapping[str, list[str]]) -> dict[str, Any]:
    """The files of each part as fields of a `data:` section without a split."""
    more = {part: names for part, names in parts.items() if part not in PART_WORDS.values()}
    files = {"files": parts["train"], **{part: parts[part] for part in ("valid", "test") if part in parts}}
    return {**files, **({"extra_parts": more} if more else {}), "split": NO_SPLIT}


def files(parts: Mapping[str, list[str]], skip_bad_files: bool = False) -> list[Found]:
    """The files of each part."""
    given = part_fields(parts)
    return [
        Found("data.files", given["files"], "relative to the folder where you train"),
        *(Found(f"data.{part}", given.get(part), "by its name") for part in ("valid", "test")),
        Found("data.extra_parts", given.get("extra_parts"), "judged each by itself"),
        Found(
            "data.bad_files", "skip" if skip_bad_files else None, "some cannot be read, see above; `stop` refuses them"
        ),
    ]


def open_readable(section: Any) -> tuple[Splits, bool]:
    """The splits of a section, and whether unreadable files were left out."""
    try:
        return section.open(), False
    except UserError as error:
        if "--data.bad_files" not in error.hint:
            raise
        return section.model_copy(update={"bad_files": "skip"}).open(), True


def check_count(count: int, unit: str, notes: Sequence[str] = ()) -> int:
    """Refuse fewer samples than can be learned from."""
    if count < MIN_SAMPLES:
        hint = " ".join(["Bring more of them.", *notes[:4]])
        raise UserError(f"training needs {MIN_SAMPLES} {unit} or more, not {count}", hint=hint)
    return count


def split(
    parts: Collection[str], count: int, unit: str, together: str = "", by: str = "", stratify: str = ""
) -> list[Found]:
    """Shares for the parts that have no files.

    together   what is never divided
    by         column whose equal values stay together
    stratify   column of the class
    """
    test = (0.1, "to judge it in the end") if count >= MIN_TEST_SAMPLES else (0.0, "too few for one")
    shares = {"valid": (0.1, "to choose the best model"), "test": test}
    left = [Found(f"data.split.{part}", *share) for part, share in shares.items() if part not in parts]
    if not left:
        return []
    return [
        Found("data.split", None, f"of {count:,} {unit}" + (f"; {together} stay together" if together else "")),
        *left,
        Found("data.split.by", by or None, f"equal values of `{by}` stay together: none is both learned and judged"),
        Found("data.split.stratify", stratify or None, "each class has the same share in every part"),
    ]


# Classes and values


def list_names(names: Iterable[Any]) -> str:
    """The first of many names."""
    shown = list(map(str, names))
    return ", ".join(shown[:MAX_LISTED_NAMES]) + " and others" * (len(shown) > MAX_LISTED_NAMES)


def list_counts(column: Array) -> str:
    """The classes of a column, and how many samples each has."""
    return list_names(f"{name} ({count:,})" for name, count in zip(*np.unique(column, return_counts=True)))


def rare_classes(column: Array, unit: str) -> list[str]:
    """A note where classes have too few samples."""
    counts = np.unique(column, return_counts=True)[1]
    rare = int((counts < MIN_CLASS_SAMPLES).sum())
    note = (
        f"{rare} of {len(counts)} have fewer than {MIN_CLASS_SAMPLES} {unit} there: too few to be learned and judged."
    )
    return [note] if rare else []


def is_discrete(column: Array | Lists) -> bool:
    """Whether a column holds a name or a whole number for each sample."""
    if isinstance(column, Lists) or column.ndim != 1:
        return False
    if column.dtype.kind == "f":
        return bool(np.isfinite(column).all() and (column == np.round(column)).all())
    return column.dtype.kind in "biuU"


class Question(NamedTuple):
    """The question of a recipe: kind of objective, column of the answer, keys, notes."""

    kind: str
    column: str
    found: list[Found]
    notes: list[str] = []  # noqa: RUF012 (a tuple has no state)


def classify(label: str, why: str) -> Question:
    """Ask for the class in a column."""
    found = [Found("objective.kind", "classify", why), Found("objective.label", label, "the column with the class")]
    return Question("classify", label, found)


def regress(target: str, why: str) -> Question:
    """Ask for the value in a column."""
    targets = Found("objective.targets", [target], "columns with the values, one or several")
    return Question("regress", target, [Found("objective.kind", "regress", why), targets])


def masked(unit: str, share: float) -> Question:
    """Ask for hidden tokens."""
    why = f"no column to learn was found: hidden {unit} are asked for"
    share_found = Found("objective.mask_ratio", share, f"of the {unit} are hidden")
    return Question("masked", "", [Found("objective.kind", "masked", why), share_found])


# Sizes


def at_count(table: Mapping[int, Any], count: int) -> Any:
    """The entry of a table {least count: entry} for a count."""
    return table[max(least for least in table if least <= count)]


def model(count: int, unit: str, sizes: Sizes, dropout: float | None = 0.1) -> list[Found]:
    """Width, depth and heads for a number of samples."""
    dim, depth, heads = at_count(sizes, count)
    return [
        Found("model.dim", dim, f"for {count:,} {unit}"),
        Found("model.depth", depth, "blocks"),
        Found("model.heads", heads, f"each of width {dim // heads}"),
        Found("model.dropout", dropout, "against learning by heart"),
    ]


def training(count: int, epochs: int, batches: Mapping[int, int], best: str | None = None) -> list[Found]:
    """Batch, steps and schedule for a number of samples.

    batches   samples of an update, by the least number of samples
    best      the score that chooses the model
    """
    batch = at_count(batches, count)
    steps = min(max(epochs * count // batch, MIN_STEPS), MAX_STEPS)
    return [
        Found("train.steps", steps, f"about {steps * batch / count:.0f} times through the data"),
        Found("train.batch", batch),
        *schedule(steps),
        Found("train.best", best, "decides which model is kept"),
    ]


def schedule(steps: int) -> list[Found]:
    """Warmup and evaluations of a training."""
    return [
        Found("train.warmup", max(1, steps // 10), "a tenth of the steps"),
        Found("train.evaluate_every", max(10, steps // 20), "twenty times in all"),
    ]
