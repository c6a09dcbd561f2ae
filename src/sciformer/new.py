"""A recipe for the user's own files: what is in them, and what was guessed from it, with the reason of every guess.

    path = new("text", ["letters.txt"])             writes letters.yaml
    path = new("patches", ["galaxies.npz"])         writes galaxies.yaml

The files are read by the readers that the training will use, so what they refuse is refused here.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .data.batch import describe
from .data.readers.arrays import Arrays
from .data.readers.text import TextFiles
from .data.source import Lists, find_files, pieces, rows_of
from .errors import UserError, one_of
from .inspect.cost import large
from .recipe import Recipe
from .tokens.patches import Patches

Array = NDArray[Any]

SAMPLE = 1 << 25  # bytes of text that are looked at; more would tell nothing new
MANY = 1000  # different characters, above which bytes are fewer
LEAST = 500  # characters worth training on
IMAGE = ("image", "images", "img", "picture", "pictures", "pixels", "spins", "map", "x", "array")
LABEL = ("label", "labels", "class", "classes", "category", "phase", "type", "y", "target", "truth")
VALUE = ("target", "targets", "value", "y", "label")
GROUP = ("chain", "group", "object", "patient", "subject", "source", "series", "run", "field", "id")
TOKENS = 64  # patches of an image that are aimed at


class Line(NamedTuple):
    """A key of a recipe, its value, and why it has it; a section has no value."""

    key: str
    value: Any = None
    why: str = ""
    depth: int = 1


def new(
    kind: str,
    files: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write a commented recipe for files of a kind, and say where.

    kind        `text`, or `patches` (also called `arrays`): images, lattices or maps in .npz files
    out         a .yaml file; unless given, named after the first file, in this folder
    overwrite   replace a recipe that is there
    """
    one_of("the kind of your files", kind, KINDS)
    if not files:
        raise UserError("the names of your files", "none", f"sciformer new {kind} FILE ...")
    found = find_files(list(files), "files")
    path = Path(out).expanduser() if out is not None else Path(f"{found[0].name.partition('.')[0] or 'recipe'}.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise UserError("a recipe named .yaml", str(path), f"Call it {path.with_suffix('.yaml')}")
    if path.exists() and not overwrite:
        raise UserError(f"no file at {path} yet", "one", "Name another with --out, or replace it with --overwrite.")
    text = KINDS[kind]([str(file) for file in files], found)
    beside = path.with_name(f".{path.stem}.{os.getpid()}.yaml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, "utf-8")
        Recipe.load(beside)  # what is written can be read
        beside.replace(path)
    except OSError as error:
        raise UserError(
            f"to write a recipe at {path}", f"{error.strerror}", "Name another place with --out."
        ) from error
    finally:
        beside.unlink(missing_ok=True)
    return path


def write(head: Sequence[str], lines: Sequence[Line]) -> str:
    """The lines of a recipe, each with its reason behind it; the head is a comment above all."""
    done = [f"# {_printable(line)}".rstrip() for line in head]
    for line in lines:
        text = f"{'  ' * (line.depth - 1)}{line.key}:"
        if line.value is not None:
            text = f"{text} {_value(line.value)}"
        done.append(f"{text:34}  # {_printable(line.why)}" if line.why else text)
    return "\n".join(done) + "\n"


def _value(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value, re.ASCII)
    return value if plain and value not in ("true", "false", "null") else json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    """Names of files and columns may hold anything; a comment is one line."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


# Text


def _text(names: list[str], paths: list[Path]) -> str:
    """A GPT on the text of the files."""
    size = sum(path.stat().st_size for path in paths)
    opened = TextFiles(kind="text", files=names).open()
    seen: set[str] = set()
    characters = read = 0
    lengths: list[int] = []
    blanks = 0
    for table in (table for source in opened.sources.values() for table in pieces(source)):
        for text in table["text"]:  # type: ignore[union-attr]
            seen |= set(text)
            characters, read = characters + len(text), read + len(text.encode())
            lines = [line for line in text.split("\n") if line.strip()]
            lengths += [len(line) for line in lines]
            blanks += sum(" " in line.strip() for line in lines)
        if read > SAMPLE:
            break
    if read > SAMPLE:  # the others are like those that were read
        characters = max(characters, int(characters * size / read))
    if characters < LEAST:
        raise UserError(f"a text of {LEAST} characters or more", f"{characters}", "Bring more of it.")
    alone = len(lengths) >= 100 and blanks < 0.1 * len(lengths)
    longest = int(np.quantile(lengths, 0.99)) if alone else 0
    what = "lines of their own" if alone else "running text"
    head = [
        f"A GPT for {_named(paths)}, written by `sciformer new text`.",
        f"Found: {large(characters)} characters of {what} in UTF-8, {len(seen)} different ones.",
        "",
        "Every number below is a guess from that, with its reason; change what you know better.",
        "All other keys and their meaning: sciformer recipes text/gpt-char",
    ]
    lines = [
        Line("base", "text/gpt-char", "the other keys come from there", 1),
        Line("about"),
        Line("title", f"GPT on {_named(paths)}", "", 2),
        Line("data", f"{_named(paths)}, {large(characters)} characters", "", 2),
        Line("data"),
        Line("files", names, "relative to the folder where you train", 2),
        *_documents(alone, characters, len(lengths)),
        Line("tokens"),
        *_units(len(seen)),
        *_size(characters, longest, "bytes" if len(seen) > MANY else "characters"),
    ]
    return write(head, lines)


def _documents(alone: bool, characters: int, count: int) -> list[Line]:
    why = f"{count:,} lines without blanks in them: each seems a text of its own" if alone else "running text"
    lines = [Line("documents", "line" if alone else "file", f"{why} (file, line or paragraph)", 2)]
    if characters >= 200_000:
        lines += [
            Line("split", None, "enough text to keep some for the final judgement", 2),
            Line("valid", 0.1, "to choose the best model", 3),
            Line("test", 0.1, "to judge it in the end" if alone else "to judge it: the end of the text", 3),
        ]
    return lines


def _units(different: int) -> list[Line]:
    if different > MANY:
        return [Line("unit", "bytes", f"{different:,} different characters are many; bytes of UTF-8 are 256", 2)]
    return [Line("unit", "characters", f"{different} different ones, each a token", 2)]


def _size(characters: int, longest: int, unit: str) -> list[Line]:
    """Context, model and steps for an amount of text."""
    amount = f"for {large(characters)} characters"
    steps, dim, depth, heads, context, batch = 500, 64, 2, 4, 32, 12
    why = f"small {amount}: a larger one would learn them by heart"
    if characters >= 20_000:
        steps, context = 1000, 64
    if characters >= 200_000:
        steps, dim, depth, why = 2000, 128, 4, f"{amount}, minutes on two CPU cores"
    if characters >= 10_000_000:
        steps, dim, depth, heads, context, batch = 5000, 384, 6, 6, 256, 64
        why = f"{amount}; on a CPU this takes hours: model.dim 128, tokens.context 64 are quicker"
    reason = f"{unit} that the model sees at once"
    if longest and unit == "characters":
        context = min(512, max(8, -(-longest // 8) * 8))
        reason = f"99 of 100 lines have {longest} characters or fewer"
    return [
        Line("context", context, reason, 2),
        Line("model"),
        Line("dim", dim, why, 2),
        Line("depth", depth, "blocks", 2),
        Line("heads", heads, f"each of width {dim // heads}", 2),
        *([Line("dropout", 0.1, "against learning by heart", 2)] if characters < 200_000 else []),
        Line("train"),
        Line("steps", steps, f"{steps * batch * context / characters:.1f} times as many characters as there are", 2),
        Line("batch", batch, "", 2),
        Line("warmup", steps // 10, "a tenth of the steps", 2),
        Line("evaluate_every", steps // 10, "ten times in all", 2),
    ]


# Images in columns


def _patches(names: list[str], paths: list[Path]) -> str:
    """A vision transformer on the images of the files."""
    table: dict[str, Any] = dict(Arrays(kind="arrays").read(list(paths)).load(0))
    count = rows_of(table)
    found = {name: f"{column.dtype} {column.shape}" for name, column in table.items()}
    name = _image(table, found)
    image = table[name]
    if image.ndim == 4 and image.shape[1] <= 4 < image.shape[3]:
        advice = f"Save it with numpy.moveaxis({name}, 1, -1)."
        raise UserError(f"channels last in `{name}`: (n, height, width, channels)", f"{image.shape}", advice)
    side = _side(image.shape[1], image.shape[2])
    tokens = Patches(kind="patches", patch=side)
    tokens.fit([{"image": image}])
    flat = {key: column for key, column in table.items() if not isinstance(column, Lists) and column.ndim == 1}
    words = {**found, **{key: f"{found[key]}: {text}" for key, text in describe(flat).items()}}
    group = _group(flat, count)
    rows, columns = tokens.places
    binary = set(np.unique(image[:64]).tolist()) <= {-1.0, 1.0}
    large_one = count >= 20_000
    batch = 64 if count >= 640 else max(2, min(32, 1 << int(math.log2(max(2, count // 10)))))
    steps = min(5000, max(200, 20 * count // batch))
    dim, depth, heads = (128, 4, 4) if large_one else (64, 2, 4)
    head = [
        f"A vision transformer for {_named(paths)}, written by `sciformer new patches`.",
        f"Found: {count:,} samples in columns",
        *(f"  {key:14} {text}" for key, text in words.items()),
        "",
        "Every choice below is a guess from that, with its reason; change what you know better.",
        "All other keys and their meaning: sciformer recipes spins/ising-vit",
    ]
    renamed = [Line("rename", {"image": name}, f"images are read from the column `image`: that is `{name}`", 2)]
    split = [Line("by", group, f"equal values of `{group}` stay together, so that none is both learned and judged", 3)]
    lines = [
        Line("about"),
        Line("title", f"vision transformer on {_named(paths)}", "", 2),
        Line("data"),
        Line("kind", "arrays", "", 2),
        Line("files", names, "relative to the folder where you train", 2),
        *(renamed if name != "image" else []),
        Line("split", None, f"of {count:,} samples", 2),
        Line("valid", 0.1, "to choose the best model", 3),
        Line("test", 0.1 if count >= 30 else 0.0, "to judge it in the end" if count >= 30 else "too few for one", 3),
        *(split if group else []),
        Line("tokens"),
        Line("kind", "patches", f"images in `{name}`", 2),
        Line("patch", side, f"divides {image.shape[1]} x {image.shape[2]} into {rows * columns} tokens", 2),
        Line(
            "scale", "none" if binary else "channel", "values are -1 and 1" if binary else "to mean 0, deviation 1", 2
        ),
        Line("periodic", False, "true where opposite edges touch", 2),
        Line("vary", [], "[flip, turn, roll, negate]: what leaves the answer the same, drawn anew in each epoch", 2),
        Line("model"),
        Line("kind", "encoder", "", 2),
        Line("dim", dim, f"{'for' if large_one else 'small, for'} {count:,} samples", 2),
        Line("depth", depth, "", 2),
        Line("heads", heads, "", 2),
        Line("objective"),
        *_objective({key: column for key, column in flat.items() if key not in (name, group)}, count),
        Line("train"),
        Line("steps", steps, f"about {steps * batch / count:.0f} times through the data", 2),
        Line("batch", batch, "", 2),
        Line("warmup", max(1, steps // 10), "a tenth of the steps", 2),
    ]
    return write(head, lines)


def _image(table: dict[str, Any], found: dict[str, str]) -> str:
    shaped = [n for n, c in table.items() if c.ndim in (3, 4) and c.dtype.kind in "biuf" and min(c.shape[1:3]) > 1]
    if not shaped:
        listed = ", ".join(f"`{name}` {text}" for name, text in found.items())
        raise UserError("a column of images, (n, height, width) or (n, height, width, channels)", listed)
    return next((name for name in IMAGE if name in shaped), max(shaped, key=lambda name: table[name][:1].size))


def _side(height: int, width: int) -> int:
    """The side of patches that divide an image into about as many as aimed at."""
    common = math.gcd(height, width)
    sides = [side for side in range(1, common + 1) if common % side == 0]
    return min(sides, key=lambda side: (abs(math.log(height * width / side**2 / TOKENS)), side))


def _group(flat: dict[str, Array], count: int) -> str:
    """A column whose equal values belong together: whole numbers or names, each several times."""
    for name in GROUP:
        if name in flat and flat[name].dtype.kind in "iuU" and 10 <= len(np.unique(flat[name])) <= count // 2:
            return name
    return ""


def _objective(flat: dict[str, Array], count: int) -> list[Line]:
    """Which class or which value; where there is neither, which patches were hidden."""
    classes = {name: len(np.unique(column)) for name, column in flat.items() if _whole(column)}
    classes = {name: number for name, number in classes.items() if 2 <= number <= min(1000, max(2, count // 5))}
    values = [name for name, column in flat.items() if column.dtype.kind == "f" and np.isfinite(column).all()]
    values = [name for name in values if name not in classes and np.ptp(flat[name]) > 0]
    named = next((name for name in LABEL if name in classes), "")
    aimed = next((name for name in VALUE if name in values), "")
    texts = [name for name in classes if flat[name].dtype.kind in "Ub"]
    label = named or ("" if aimed else next(iter(texts or classes), ""))
    others = [f"`{name}` ({number} classes)" for name, number in classes.items() if name != label]
    aim = "" if label else aimed or next(iter(values), "")
    others += [f"`{name}` (values)" for name in values if name != aim]
    also = f"; others: {', '.join(others)}" if others else ""
    if label:
        return [
            Line("kind", "classify", f"`{label}` has {classes[label]} different values{also}", 2),
            Line("label", label, "the column with the class", 2),
            *([Line("along", values[0], "the report draws the answers along this column", 2)] if values else []),
        ]
    if aim:
        return [
            Line("kind", "regress", f"`{aim}` has values{also}", 2),
            Line("targets", [aim], "columns with the values, one or several", 2),
        ]
    return [
        Line("kind", "masked", "no column to learn was found: hidden patches are asked for", 2),
        Line("share", 0.5, "of the patches are hidden", 2),
    ]


def _whole(column: Array) -> bool:
    """Whether a column holds names or whole numbers."""
    if column.dtype.kind == "f":
        return bool(np.isfinite(column).all() and (column == np.round(column)).all())
    return column.dtype.kind in "iubU"


def _named(paths: list[Path]) -> str:
    return paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"


KINDS: dict[str, Callable[[list[str], list[Path]], str]] = {"text": _text, "patches": _patches, "arrays": _patches}
