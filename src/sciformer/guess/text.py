"""A recipe for text: what the files hold decides which; running text gets a language model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..data.readers.lines import Lines
from ..data.readers.parts import REPLACE
from ..data.readers.rows import SUFFIXES
from ..data.readers.text import TextFiles
from ..data.source import Table, pieces
from ..errors import UserError
from ..inspect.cost import large
from .forms import CLASSES, marked, tabbed, tagged, translations
from .page import RELATIVE, Line, by_part, files_of, named, write
from .tasks import classify, tag, translate

SAMPLE = 1 << 25  # bytes of text that are looked at; more would tell nothing new
MANY = 1000  # different characters, above which bytes are fewer
LEAST = 500  # characters worth training on


def text(names: list[str], paths: list[Path]) -> str:
    """A recipe for what the files hold: translations, labelled texts, tagged words, or running text."""
    try:
        return _recipe(names, paths)
    except UserError as error:
        if REPLACE not in error.hint:
            raise
        way = error.hint.replace(REPLACE, f"sciformer train text/gpt-char --data.files NAME ... {REPLACE}")
        raise error.with_fields(hint=way) from error


def _recipe(names: list[str], paths: list[Path]) -> str:
    found = marked(paths) if len(paths) > 1 else None
    if found and CLASSES.issuperset(found.values):
        return classify(by_part(found.names), paths, found.values)
    if found and translations(found):
        return translate(by_part(found.names), found.values, paths)
    if columns := tabbed(paths[0]):
        return translate(by_part([str(path) for path in paths]), columns, paths)
    if all(_suffix(path) in SUFFIXES for path in paths):
        parts = by_part([str(path) for path in paths])
        table = Lines(kind="lines", files=parts["train"]).read(parts["train"]).load(0)
        return classify(parts, paths) if len(table) > 1 else _lines(parts, paths, table)
    if tagged(paths[0]):
        return tag(by_part([str(path) for path in paths]), paths)
    return _running(names, paths)


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def _running(names: list[str], paths: list[Path]) -> str:
    """A GPT on the text of the files."""
    parts = by_part([str(path) for path in paths])
    opened = TextFiles(kind="text", files=parts["train"] if len(parts) > 1 else names).open()
    size = sum(path.stat().st_size for path in paths if len(parts) == 1 or str(path) in parts["train"])
    seen = _Seen(table for source in opened.sources.values() for table in pieces(source))
    lengths, characters = seen.lengths, seen.of(size)
    alone = len(lengths) >= 100 and seen.blanks < 0.1 * len(lengths)
    longest = int(np.quantile(lengths, 0.99)) if alone else 0
    data = [
        *(files_of(parts) if len(parts) > 1 else [Line("files", names, RELATIVE, 2)]),
        *_documents(alone, characters, len(lengths), len(parts) > 1),
    ]
    return _page(paths, seen, characters, data, "lines of their own" if alone else "running text", longest)


def _lines(parts: dict[str, list[str]], paths: list[Path], table: Table) -> str:
    """A GPT on texts in a table that has nothing else."""
    seen = _Seen([table])
    data = [Line("kind", "lines", "a table with texts and no other column", 2), *files_of(parts)]
    return _page(paths, seen, seen.of(0), data, "texts in a table", 0)


class _Seen:
    """What was counted in texts, up to as many as tell enough."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self.letters: set[str] = set()
        self.characters = self.read = self.blanks = 0
        self.lengths: list[int] = []
        for table in tables:
            for text in table["text"]:  # type: ignore[union-attr]
                self.letters |= set(text)
                self.characters, self.read = self.characters + len(text), self.read + len(text.encode())
                lines = [line for line in text.split("\n") if line.strip()]
                self.lengths += [len(line) for line in lines]
                self.blanks += sum(" " in line.strip() for line in lines)
            if self.read > SAMPLE:
                break

    def of(self, size: int) -> int:
        """Characters in all, where the files have so many bytes: the others are like those that were read."""
        found = max(self.characters, int(self.characters * size / self.read)) if self.read > SAMPLE else self.characters
        if found < LEAST:
            raise UserError(
                f"training needs a text of {LEAST} characters or more, not {found}", hint="Bring more of it."
            )
        return found


def _page(paths: list[Path], seen: _Seen, characters: int, data: list[Line], what: str, longest: int) -> str:
    head = [
        f"A GPT for {named(paths)}, written by `sciformer new text`.",
        f"Found: {large(characters)} characters of {what} in UTF-8, {len(seen.letters)} different ones.",
        "",
        "Every number below is a guess from that, with its reason; change what you know better.",
        "All other keys and their meaning: sciformer recipes text/gpt-char",
    ]
    lines = [
        Line("base", "text/gpt-char", "the other keys come from there", 1),
        Line("about"),
        Line("title", f"GPT on {named(paths)}", "", 2),
        Line("data", f"{named(paths)}, {large(characters)} characters", "", 2),
        Line("data"),
        *data,
        Line("tokens"),
        *_units(len(seen.letters)),
        *_size(characters, longest, "bytes" if len(seen.letters) > MANY else "characters"),
    ]
    return write(head, lines)


def _documents(alone: bool, characters: int, count: int, divided: bool) -> list[Line]:
    why = f"{count:,} lines without blanks in them: each seems a text of its own" if alone else "running text"
    lines = [Line("documents", "line" if alone else "file", f"{why} (file, line or paragraph)", 2)]
    if characters >= 200_000 and not divided:
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
