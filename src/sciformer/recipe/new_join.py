"""Guessed recipes with several streams, for a table of objects.

Each object has images, series or other data:

    sciformer new join objects.csv                  columns with names of files, columns with lists, numbers
    sciformer new join objects.csv curves.parquet   a further file has many objects, found by an id

The kind of a stream is the first kind of `sciformer new KIND` with a recipe that fits the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.columns import Array, Table, rows_of
from ..data.readers.join import Join, as_names, read_whole
from ..data.readers.series.curves import form_of
from ..data.readers.series.names import LABEL, plain
from ..errors import UserError, list_names
from ..files.formats.base import Layout, open_file
from . import guess
from .given import Given
from .page import Found, Page
from .registry import find, names

KIND, NUMBERS = "join", "numbers"
SIZES: guess.Sizes = {0: (32, 2, 4), 500: (64, 3, 4), 20_000: (128, 4, 8)}
BATCHES = {0: 8, 320: 32, 20_000: 128}
EPOCHS = 30
MAX_INSPECTED_FILES = 64  # files of a stream
MIN_FILES_SHARE = 0.5  # share of the cells of a column that name existing files
DROP_STREAM = 0.1
OWN_DATA_KEYS = ("kind", "files", "valid", "test", "extra_parts", "split", "label", "objects")  # not of a stream


class FoundStream(NamedTuple):
    """Guessed stream: keys of its reader and its tokens.

    column   column of the table with file names or ids
    what     description of the files, for a note
    """

    kind: str
    data: dict[str, Any]
    tokens: list[Found]
    column: str
    what: str


def guess_join(names_given: list[str], paths: list[Path], given: Given) -> Page:
    """Guess a multistream recipe for a table of objects and its files."""
    first, *others = names_given
    section = Join(kind=KIND, files=[first])
    table = section.read_table(paths[0])
    count = guess.check_count(rows_of(table), "objects")
    streams: dict[str, FoundStream] = {}
    texts = {name: as_names(column, name, "") for name, column in table.items() if _names_things(column)}
    for name, cells in texts.items():
        if stream := _from_cells(name, cells, paths[0].parent):
            streams[name] = stream
    listed = [name for name, kind in open_file(paths[0], Layout(), form_of(paths[0])).kinds.items() if kind.listed]
    for file in [*others, *([first] if listed else [])]:
        stream = _by_id(file, {name: cells for name, cells in texts.items() if name not in streams})
        name = Path(file).name.partition(".")[0]
        streams[stream.kind if file == first or name in streams else name] = stream
    ask = _find_question({name: column for name, column in table.items() if name not in streams}, count, given)
    used = {ask.column, *streams, *(stream.column for stream in streams.values())}
    numbers = [name for name, column in table.items() if name not in used and _is_number(column)]
    tokens = [one for name, stream in streams.items() for one in _token_keys(name, stream)]
    if numbers:
        tokens += [Found(f"tokens.{NUMBERS}.kind", "scalars", "a token for each number of an object")]
        tokens += [Found(f"tokens.{NUMBERS}.columns", numbers, "leave out numbers that new objects will not have")]
    if len(streams) + bool(numbers) < 2:
        told = f"the streams are: {', '.join([*streams, *([NUMBERS] if numbers else [])]) or 'none'}"
        hint = "Name files in a column of the table, add a file with series or lists, or columns of numbers. "
        hint += "For a single stream write the recipe for its kind: sciformer new KIND FILES."
        raise UserError(f"a recipe of several streams needs at least two streams, but {told}", hint=hint, file=paths[0])
    found = [
        Found("data.kind", KIND),
        Found("data.files", [first], "one row per object; file names in it are relative to its folder"),
        *(one for name, stream in streams.items() for one in _reader_keys(name, stream)),
        *guess.split(["train"], count, "objects", stratify=ask.column if ask.kind == "classify" else ""),
        *tokens,
        Found("model.kind", "multistream", "one transformer reads the tokens of all streams"),
        *guess.model(count, "objects", SIZES),
        Found("model.pool", "class_token"),
        *([Found(f"model.{NUMBERS}.position", "none", "numbers have no places")] if numbers else []),
        *ask.found,
        *guess.training(count, EPOCHS, BATCHES, "accuracy" if ask.kind == "classify" else "loss"),
    ]
    notes = [
        f"Found: {count:,} objects with {len(streams) + bool(numbers)} streams.",
        *(f"  {name}: {stream.what}" for name, stream in streams.items()),
        *([f"  {NUMBERS}: {list_names(numbers)}"] if numbers else []),
        *ask.notes,
    ]
    roles = {"label" if ask.kind == "classify" else "target": ask.column}
    return Page("several streams", paths, f"{count:,} objects", notes, "", found, roles, _unused(table, used, numbers))


def _unused(table: Table, used: set[str], numbers: Sequence[str]) -> list[str]:
    return [name for name in table if name not in used and name not in numbers]


def _names_things(column: Any) -> bool:
    """Whether a column may have names of files or ids of objects."""
    return isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "iuUSO"


def _is_number(column: Any) -> bool:
    return bool(
        isinstance(column, np.ndarray)
        and column.ndim == 1
        and column.dtype.kind == "f"
        and len(np.unique(column[np.isfinite(column)])) > 1
    )


# Streams


def _from_cells(column: str, cells: Array, folder: Path) -> FoundStream | None:
    """Stream of the files named in a column; None if the column names no files."""
    filled = cells[cells != ""].tolist()
    places = [folder / cell for cell in filled]
    there = [path for path in places if path.is_file()]
    if not filled or len(there) < MIN_FILES_SHARE * len(filled):
        return None
    if lost := len(filled) - len(there):
        message = f"{lost:,} of {len(filled):,} files in the column `{column}` do not exist"
        raise UserError(message, hint="Leave the cell empty if an object has no file.", file=folder)
    some = [there[place] for place in np.unique(np.linspace(0, len(there) - 1, MAX_INSPECTED_FILES).astype(int))]
    kind, page = _guess_kind(some, f"the files in the column `{column}`")
    data, tokens = _stream_keys(page)
    data.pop("id", None)
    gaps = f"; {len(cells) - len(filled):,} objects have none" if len(filled) < len(cells) else ""
    return FoundStream(kind, {**data, "column": column}, tokens, column, f"files in `{column}`{gaps}")


def _by_id(file: str, texts: Mapping[str, Array]) -> FoundStream:
    """Stream of a file with many objects, with the table column of the object ids."""
    kind, page = _guess_kind([Path(file).expanduser()], f"the lists or rows of {file}")
    data, tokens = _stream_keys(page)
    reader = Join(kind=KIND, streams={kind: {**data, "files": [file]}}).reader(kind)
    found = read_whole(reader.read([file]))
    if "id" not in found:
        message = f"{file} has no column with the id of the object"
        raise UserError(message, hint="Add a column `id`, or rename the column with the ids to `id`.", file=file)
    ids = set(as_names(found["id"], "id", "").tolist())
    shares = {name: len(ids.intersection(cells.tolist())) / max(1, len(ids)) for name, cells in texts.items()}
    column = max(shares, key=lambda name: shares[name], default="")
    if not shares.get(column):
        message = f"no column of the table has the ids of {file}, for example {next(iter(ids))!r}"
        raise UserError(message, hint="Add a column with the id of each object.", file=file)
    gaps = int((~np.isin(texts[column], list(ids))).sum())
    lacking = f"; {gaps:,} objects have none" if gaps else ""
    return FoundStream(
        kind, {**data, "files": [file], "column": column}, tokens, column, f"{file} by `{column}`{lacking}"
    )


def _guess_kind(paths: Sequence[Path], what: str) -> tuple[str, Page]:
    """First kind of files whose guessed recipe fits, and the recipe."""
    words, reasons = [str(path) for path in paths], list[str]()
    kinds = [kind for kind in names("new") if kind != KIND]
    kinds.sort(key=lambda kind: not find("new", kind).recognises(words[0]))
    for kind in kinds:
        try:
            page: Page = find("new", kind).page(words, list(paths), Given())
        except UserError as error:
            reasons.append(f"{kind}: {error.message}")
            continue
        if any(one.key == "tokens.kind" for one in page.found):
            return kind, page
    hint = " ".join(f"{reason}." for reason in reasons[:4])
    raise UserError(f"no kind of data fits {what}", hint=hint, file=paths[0])


def _stream_keys(page: Page) -> tuple[dict[str, Any], list[Found]]:
    """Keys of reader and tokens, from a recipe for the files of one stream."""
    data: dict[str, Any] = {}
    for one in page.found:
        section, _, key = one.key.partition(".")
        if section == "data" and one.value not in (None, "") and key.partition(".")[0] not in OWN_DATA_KEYS[1:]:
            data[key] = one.value
    return data, [one for one in page.found if one.key.startswith("tokens.")]


def _reader_keys(name: str, stream: FoundStream) -> list[Found]:
    whys = {"column": "id of the object" if "files" in stream.data else "name of the file, or an empty cell"}
    return [Found(f"data.streams.{name}.{key}", value, whys.get(key, "")) for key, value in stream.data.items()]


def _token_keys(name: str, stream: FoundStream) -> list[Found]:
    return [one._replace(key=f"tokens.{name}.{one.key.removeprefix('tokens.')}") for one in stream.tokens]


# The question


def _find_question(table: Table, count: int, given: Given) -> guess.Question:
    """Choose the objective: classify, regress or masked.

    The classes are in a column with a usual name, such as `label`, or in a column named by the user.
    """
    drop = Found("objective.drop_stream", DROP_STREAM, "in training, so that any stream may be missing later")

    def classify() -> guess.Question | str:
        usual = [name for word in LABEL for name in table if plain(name) == word]
        label = given.get("objective.label") or next((name for name in usual if guess.is_discrete(table[name])), "")
        if not label or label not in table:
            return "No classes: no column is called label, class or type. Choose one with --objective.label NAME."
        column = np.asarray(table[label])
        number = len(np.unique(column))
        if not 2 <= number <= min(guess.MAX_CLASSES, count // 2):
            return f"No classes: `{label}` has {number:,} different values."
        ask = guess.classify(label, f"`{label}` has {number} distinct values")
        notes = [f"Classes in `{label}`: {guess.list_counts(column)}.", *guess.rare_classes(column, "objects")]
        return ask._replace(found=[*ask.found, drop], notes=notes)

    def regress() -> guess.Question | str:
        targets = given.listed("objective.targets")
        if not targets:
            return "No target: name its column with --objective.kind regress --objective.targets NAME."
        ask = guess.regress(targets[0], "given")
        return ask._replace(found=[*ask.found, drop])

    def masked() -> guess.Question:
        ask = guess.masked("tokens", 0.3)
        streams = [
            Found("objective.every_stream", True, "tokens of all streams are masked"),
            Found("objective.hide_stream", 0.3, "probability to hide a whole stream, predicted from the others"),
        ]
        return ask._replace(found=[*ask.found, *streams])

    return guess.choose(given, {"classify": classify, "regress": regress, "masked": masked})


JOIN = guess.Guess(guess_join)
