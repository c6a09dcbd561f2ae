"""A recipe for text: what the files hold decides which; running text gets a language model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data.columns import Lists, Table
from ...data.readers.text_parts import REPLACE_OPTION, read_lines, read_text
from ...data.source import Splits, pieces
from ...errors import UserError
from ...files.formats.delimited import DELIMITED_SUFFIXES, form_of
from ...inspect.cost import format_large
from ...recipe.page import (
    GUESSES_NOTE,
    NO_SPLIT,
    PART_WORDS,
    RELATIVE_PATHS_NOTE,
    Guess,
    Line,
    file_lines,
    group_by_part,
    name_files,
    write,
)
from .readers.labelled import Lines
from .readers.pairs import COLUMN_MARK, Parallel
from .readers.running import TextFiles
from .readers.tagged import Columns

MAX_SAMPLE_BYTES = 1 << 25  # bytes of text that are looked at; more would tell nothing new
MAX_CHARACTERS = 1000  # different characters, above which bytes are fewer
MIN_TRAINING_CHARACTERS = 500  # characters worth training on


def text_recipe(names: list[str], paths: list[Path]) -> str:
    """A recipe for what the files hold: translations, labelled texts, tagged words, or running text."""
    try:
        return _detect_recipe(names, paths)
    except UserError as error:
        if REPLACE_OPTION not in error.hint:
            raise
        way = error.hint.replace(
            REPLACE_OPTION, f"sciformer train text/gpt-char --data.files NAME ... {REPLACE_OPTION}"
        )
        raise error.with_fields(hint=way) from error


def _detect_recipe(names: list[str], paths: list[Path]) -> str:
    found = find_name_pattern(paths) if len(paths) > 1 else None
    if found and CLASS_NAMES.issuperset(found.values):
        return classifier_recipe(group_by_part(found.names), paths, found.values)
    if found and are_translations(found):
        return translation_recipe(group_by_part(found.names), found.values, paths)
    if columns := tab_separated_columns(paths[0]):
        return translation_recipe(group_by_part([str(path) for path in paths]), columns, paths)
    if all(_bare_suffix(path) in DELIMITED_SUFFIXES for path in paths):
        parts = group_by_part([str(path) for path in paths])
        table = Lines(kind="lines", files=parts["train"]).read(parts["train"]).load(0)
        return classifier_recipe(parts, paths) if len(table) > 1 else _text_table_recipe(parts, paths, table)
    if is_tagged(paths[0]):
        return tagger_recipe(group_by_part([str(path) for path in paths]), paths)
    return _running_text_recipe(names, paths)


def _bare_suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def _running_text_recipe(names: list[str], paths: list[Path]) -> str:
    """A GPT on the text of the files."""
    parts = group_by_part([str(path) for path in paths])
    opened = TextFiles(kind="text", files=parts["train"] if len(parts) > 1 else names).open()
    size = sum(path.stat().st_size for path in paths if len(parts) == 1 or str(path) in parts["train"])
    seen = _TextCounts(table for source in opened.sources.values() for table in pieces(source))
    lengths, characters = seen.lengths, seen.total_characters(size)
    alone = len(lengths) >= 100 and seen.blanks < 0.1 * len(lengths)
    longest = int(np.quantile(lengths, 0.99)) if alone else 0
    data = [
        *(file_lines(parts) if len(parts) > 1 else [Line("files", names, RELATIVE_PATHS_NOTE, 2)]),
        *_document_lines(alone, characters, len(lengths), len(parts) > 1),
    ]
    return _gpt_page(paths, seen, characters, data, "lines of their own" if alone else "running text", longest)


def _text_table_recipe(parts: dict[str, list[str]], paths: list[Path], table: Table) -> str:
    """A GPT on texts in a table that has nothing else."""
    seen = _TextCounts([table])
    data = [Line("kind", "lines", "a table with texts and no other column", 2), *file_lines(parts)]
    return _gpt_page(paths, seen, seen.total_characters(0), data, "texts in a table", 0)


class _TextCounts:
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
            if self.read > MAX_SAMPLE_BYTES:
                break

    def total_characters(self, size: int) -> int:
        """Characters in all, where the files have so many bytes: the others are like those that were read."""
        found = (
            max(self.characters, int(self.characters * size / self.read))
            if self.read > MAX_SAMPLE_BYTES
            else self.characters
        )
        if found < MIN_TRAINING_CHARACTERS:
            raise UserError(
                f"training needs a text of {MIN_TRAINING_CHARACTERS} characters or more, not {found}",
                hint="Bring more of it.",
            )
        return found


def _gpt_page(paths: list[Path], seen: _TextCounts, characters: int, data: list[Line], what: str, longest: int) -> str:
    head = [
        f"A GPT for {name_files(paths)}, written by `sciformer new text`.",
        f"Found: {format_large(characters)} characters of {what} in UTF-8, {len(seen.letters)} different ones.",
        "",
        "Every number below is a guess from that, with its reason; change what you know better.",
        "All other keys and their meaning: sciformer recipes text/gpt-char",
    ]
    lines = [
        Line("base", "text/gpt-char", "the other keys come from there", 1),
        Line("about"),
        Line("title", f"GPT on {name_files(paths)}", "", 2),
        Line("data", f"{name_files(paths)}, {format_large(characters)} characters", "", 2),
        Line("data"),
        *data,
        Line("tokens"),
        *_unit_lines(len(seen.letters)),
        *_size_lines(characters, longest, "bytes" if len(seen.letters) > MAX_CHARACTERS else "characters"),
    ]
    return write(head, lines)


def _document_lines(alone: bool, characters: int, count: int, divided: bool) -> list[Line]:
    why = f"{count:,} lines without blanks in them: each seems a text of its own" if alone else "running text"
    lines = [Line("documents", "line" if alone else "file", f"{why} (file, line or paragraph)", 2)]
    if characters >= 200_000 and not divided:
        lines += [
            Line("split", None, "enough text to keep some for the final judgement", 2),
            Line("valid", 0.1, "to choose the best model", 3),
            Line("test", 0.1, "to judge it in the end" if alone else "to judge it: the end of the text", 3),
        ]
    return lines


def _unit_lines(different: int) -> list[Line]:
    if different > MAX_CHARACTERS:
        return [Line("unit", "bytes", f"{different:,} different characters are many; bytes of UTF-8 are 256", 2)]
    return [Line("unit", "characters", f"{different} different ones, each a token", 2)]


def _size_lines(characters: int, longest: int, unit: str) -> list[Line]:
    """Context, model and steps for an amount of text."""
    amount = f"for {format_large(characters)} characters"
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


# Recipes for texts with an answer: translations, labelled texts, tagged words


MIN_SAMPLES = 10  # samples worth training on
MAX_CLASSES = 1000  # classes


def section_fields(parts: Mapping[str, list[str]]) -> dict[str, Any]:
    """The same as fields of a section, with nothing drawn for what has no files."""
    more = {part: names for part, names in parts.items() if part not in PART_WORDS.values()}
    files = {"files": parts["train"], "valid": parts.get("valid", []), "test": parts.get("test", [])}
    return {**files, "extra_parts": more, "split": NO_SPLIT}


def _split_lines(parts: Mapping[str, list[str]], count: int, unit: str) -> list[Line]:
    """Shares for parts that have no files."""
    shares = {"valid": (0.1, "to choose the best model"), "test": (0.1, "to judge it in the end")}
    if count < 100:
        shares["test"] = (0.0, "too few for one")
    if all(part in parts for part in shares):
        return []
    return [
        Line("split", None, f"drawn from {count:,} {unit}, equal ones together", 2),
        *(Line(part, *share, 3) for part, share in shares.items() if part not in parts),
    ]


def _count_samples(opened: Splits) -> int:
    count = sum(opened.sources["train"].sizes)
    if count < MIN_SAMPLES:
        raise UserError(f"training needs {MIN_SAMPLES} samples or more, not {count}", hint="Bring more of them.")
    return count


def _round_up(number: float, steps: Sequence[int]) -> int:
    """The first of the steps that is not less, or the last."""
    return next((step for step in steps if step >= number), steps[-1])


def _train_lines(count: int, epochs: int, batch: int, best: str) -> list[Line]:
    """Batches and steps for so many samples."""
    steps = max(20, epochs * -(-count // batch))
    return [
        Line("train"),
        Line("steps", steps, f"{epochs} times through the data", 2),
        Line("batch", batch, "", 2),
        Line("learning_rate", 5e-4, "half the default: from random weights, on little data", 2),
        Line("warmup", max(1, steps // 10), "a tenth of the steps", 2),
        Line("min_lr_ratio", 0.0, "", 2),
        Line("best", best, "decides which model is kept", 2),
    ]


def _subword_lines(texts: Sequence[str], lower: bool, parts: float = 1.6) -> list[Line]:
    """Parts of words, as many as the amount of text bears, and a context that nearly all texts fit into.

    parts    of a word, in the mean of a long text
    """
    counts = np.array([len(text.split()) for text in texts])
    different = len({word for text in texts for word in text.split()})
    size = _round_up(different / 2, (500, 1000, 2000, 4000, 8000, 16000))
    long = int(np.quantile(counts, 0.99))
    return [
        Line("unit", "wordpiece", "parts of words, so that none is unknown (or words, bpe, unigram, characters)", 2),
        Line("vocabulary", size, f"at most; there are {different:,} different words", 2),
        Line("lower", lower, "large and small letters are alike" if lower else "large letters tell names", 2),
        Line(
            "context",
            _round_up(parts * long + 2, (16, 32, 64, 128, 256, 512)),
            f"99 of 100 have {long} words or fewer",
            2,
        ),
    ]


def _encoder_lines(count: int, unit: str) -> list[Line]:
    dim, depth = (64, 2) if count < 2000 else (128, 2) if count < 50_000 else (256, 4)
    return [
        Line("model"),
        Line("kind", "encoder", "every word sees all others", 2),
        Line("dim", dim, f"for {count:,} {unit}", 2),
        Line("depth", depth, "blocks", 2),
        Line("heads", 4, f"each of width {dim // 4}", 2),
        Line("dropout", 0.2, "against learning by heart", 2),
    ]


# Translation


def translation_recipe(parts: dict[str, list[str]], columns: list[str], paths: list[Path]) -> str:
    """A Transformer from the first column to the second."""
    opened = Parallel(kind="parallel", columns=columns, **section_fields(parts)).open()
    count = _count_samples(opened)
    table: dict[str, Any] = dict(opened.sources["train"].load(0))
    source, target = columns[:2]
    words = {name: sum(len(text.split()) for text in table[name]) for name in (source, target)}
    different = len({word for name in words for text in table[name] for word in text.split()})
    base, size = (
        ("transformer-tiny", (500, 1000, 2000, 5000, 10_000)) if count < 500_000 else ("transformer-base", (37_000,))
    )
    vocabulary = _round_up(different / 3, size)
    epoch = int(1.5 * max(words.values()))  # tokens, with some padding
    tokens = _round_up(epoch / 20, (512, 1024, 2048, 4096, 8192))
    steps = int(np.clip(100 * epoch // tokens, 500, 8000)) if base.endswith("tiny") else 100_000
    marked = any(COLUMN_MARK in name for name in parts["train"])
    head = [
        f"A Transformer that translates {source} to {target}, for {name_files(paths)}, "
        "written by `sciformer new text`.",
        f"Found: {count:,} pairs of lines, {words[source]:,} and {words[target]:,} words, {different:,} different.",
        *opened.notes,
        "",
        GUESSES_NOTE,
        f"All other keys and their meaning: sciformer recipes text/{base}",
    ]
    how = f"for {COLUMN_MARK} in the names of files" if marked else "the texts in a line, with tabs between"
    learn = Line("learn", [source, target], "one vocabulary for both, so that names are copied", 3)
    lines = [
        Line("base", f"text/{base}", f"for {count:,} pairs; the other keys come from there", 1),
        Line("about"),
        Line("title", f"{source} to {target} on {name_files(paths)}", "", 2),
        Line("data", f"{count:,} pairs", "", 2),
        Line("data"),
        Line("kind", "parallel", "lines that belong together", 2),
        Line("columns", columns, f"{how}; turn them in tokens below to translate the other way", 2),
        *file_lines(parts),
        *_split_lines(parts, count, "pairs"),
        Line("tokens"),
        Line("source", None, "what is read", 2),
        Line("column", source, "", 3),
        learn,
        Line("vocabulary", vocabulary, "byte pairs, the same number below", 3),
        Line("target", None, "what is written", 2),
        Line("column", target, "", 3),
        learn,
        Line("vocabulary", vocabulary, f"at most; there are {different:,} different words", 3),
        Line("train"),
        Line("steps", steps, f"about {steps * tokens / epoch:.0f} times through the data", 2),
        Line("tokens", tokens, "of one language in an update, padding included", 2),
        Line("warmup", min(4000, steps // 4), "a quarter of the steps" if steps < 16_000 else "as in the paper", 2),
        Line("evaluate_every", max(1, steps // 16), "", 2),
        Line("save_every", max(1, steps // 80), "the last of these are averaged in the end", 2),
    ]
    return write(head, lines)


# Labelled texts


def classifier_recipe(parts: dict[str, list[str]], paths: list[Path], classes: Sequence[str] = ()) -> str:
    """An encoder that says which label a text has, or what value."""
    section = Lines(kind="lines", classes={name: [] for name in classes}, **section_fields(parts))
    opened = section.open()
    count = _count_samples(opened)
    table: dict[str, Any] = dict(opened.sources["train"].load(0))
    label, values, why = _find_label(table, count)
    found = [f"`{name}` ({len(np.unique(column))} different)" for name, column in table.items() if name != "text"]
    shown = ", ".join(map(str, np.unique(table[label])[:8]))
    head = [
        f"A classifier of texts for {name_files(paths)}, written by `sciformer new text`.",
        f"Found: {count:,} texts, and beside them {', '.join(found)}.",
        *opened.notes,
        "",
        GUESSES_NOTE,
        "All other keys and their meaning: sciformer recipes text/sentiment-scratch",
    ]
    objective = [
        Line("kind", "regress", why, 2),
        Line("targets", [label], "columns with the values, one or several", 2),
    ]
    if not values:
        objective = [
            Line("kind", "classify", f"{why}: {shown}", 2),
            Line("label", label, "the column with the class", 2),
        ]
    own = [
        Line(
            "classes",
            {name: [] for name in classes},
            f"a file for each: what stands for {COLUMN_MARK} in their names",
            2,
        )
    ]
    lines = [
        Line("about"),
        Line("title", f"{label} of texts in {name_files(paths)}", "", 2),
        Line("data", f"{count:,} texts", "", 2),
        Line("data"),
        Line("kind", "lines", "texts with a label", 2),
        *file_lines(parts),
        *(own if classes else []),
        *_split_lines(parts, count, "texts"),
        Line("tokens"),
        Line("kind", "text", "of the column `text`", 2),
        *_subword_lines(table["text"], lower=True),
        *_encoder_lines(count, "texts"),
        Line("objective"),
        *objective,
        *_train_lines(count, 20 if count < 2000 else 10, 32 if count >= 320 else 8, "loss" if values else "accuracy"),
    ]
    return write(head, lines)


def _find_label(table: Mapping[str, Any], count: int) -> tuple[str, bool, str]:
    """The column to learn, whether it holds values, and why it was taken."""
    columns = {name: column for name, column in table.items() if name != "text"}
    sizes = {name: len(np.unique(column)) for name, column in columns.items()}
    real = [name for name, column in columns.items() if column.dtype.kind == "f" and np.isfinite(column).all()]
    few = [
        name for name, size in sizes.items() if 2 <= size <= min(MAX_CLASSES, max(2, count // 2)) and name not in real
    ]
    named = [name for name in ("label", *few, *real) if name in few or name in real]
    if not named:
        listed = ", ".join(f"`{name}` with {size:,}" for name, size in sizes.items())
        raise UserError(
            f"no column has 2 to {MAX_CLASSES:,} different labels, or numbers: there is {listed or 'only `text`'}"
        )
    name = named[0]
    return name, name in real, f"`{name}` has {sizes[name]} different values"


# Tagged words


def tagger_recipe(parts: dict[str, list[str]], paths: list[Path]) -> str:
    """An encoder that says which tag each word has."""
    suffix = (paths[0].with_suffix("") if paths[0].suffix == ".gz" else paths[0]).suffix.lower()
    words, tags = TAGGED_FORMATS.get(suffix, (0, None))
    universal = suffix == ".conllu"
    opened = Columns(kind="conll", words=words, tags=tags, comments=universal, **section_fields(parts)).open()
    count = _count_samples(opened)
    table = opened.sources["train"].load(0)
    column, found = table["words"], table["tags"]
    assert isinstance(column, Lists)
    assert isinstance(found, Lists)
    kinds = sorted(set(found.values.tolist()))
    spans = all(kind == "O" or kind[1:2] == "-" for kind in kinds)
    texts = [" ".join(part) for part in np.split(column.values, column.lengths.cumsum()[:-1])]
    head = [
        f"A tagger of words for {name_files(paths)}, written by `sciformer new text`.",
        f"Found: {count:,} sentences, {len(column.values):,} words, {len(kinds)} tags: {', '.join(kinds[:12])}",
        *opened.notes,
        "",
        GUESSES_NOTE,
        "All other keys and their meaning: sciformer recipes text/tagging",
    ]
    where = [
        Line("words", words, "number of the column with the word", 2),
        *([Line("tags", tags, "and with the tag; the last unless given", 2)] if tags is not None else []),
        *([Line("comments", True, "lines with # before a sentence", 2)] if universal else []),
    ]
    lines = [
        Line("about"),
        Line("title", f"tags of words in {name_files(paths)}", "", 2),
        Line("data", f"{count:,} sentences", "", 2),
        Line("data"),
        Line("kind", "conll", "a word a line, and empty lines between sentences", 2),
        *file_lines(parts),
        *where,
        *_split_lines(parts, count, "sentences"),
        Line("tokens"),
        Line("kind", "text", "", 2),
        Line("column", "words", "", 2),
        *_subword_lines(texts, lower=False, parts=3),
        *_encoder_lines(count, "sentences"),
        Line("objective"),
        Line("kind", "tag", "entities: tags begin with B- and I-" if spans else "a tag for each word", 2),
        *_train_lines(count, 20, 32 if count >= 320 else 8, "entity_f1" if spans else "token_accuracy"),
    ]
    return write(head, lines)


# The form of text files, by their names and their beginnings


LANGUAGE_CODES = frozenset(
    re.findall(
        r"\w+",
        """src tgt trg source target af am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gd gl gu ha he
        hi hr hu hy id ig is it ja ka kk km ko la lo lt lv mk ml mn mr ms mt my nb ne nl nn no pa pl pt ro ru si sk sl
        so sq sr sv sw ta te th tl tr uk ur uz vi xh yo zh zu""",
    )
)
CLASS_NAMES = frozenset(
    ("pos", "neg", "positive", "negative", "neutral", "ham", "spam", "true", "false", "real", "fake")
)
TAGGED_FORMATS = {".conll": (0, None), ".conllu": (1, 3), ".iob": (0, None), ".iob2": (0, None), ".bio": (0, None)}
MIN_LENGTH_CORRELATION = 0.3  # least correlation of the lengths of lines that belong together
MIN_ALIGNED_LINES = 8  # lines that tell nothing about that


class NamePattern(NamedTuple):
    """Names that differ in one part: what stands there, and the names with a mark in its place."""

    values: list[str]
    names: list[str]


def find_name_pattern(paths: Sequence[Path]) -> NamePattern | None:
    """The names with a mark, where all files come in sets that differ in the same part, counted from the end."""
    words = [re.split(r"([._-])", path.name) for path in paths]
    for place in range(1, max(map(len, words)) + 1, 2):
        sets: dict[str, list[str]] = {}
        for path, parts in zip(paths, words):
            if len(parts) < place:
                return None
            name = "".join([*parts[: len(parts) - place], COLUMN_MARK, *parts[len(parts) - place + 1 :]])
            sets.setdefault(str(path.with_name(name)), []).append(parts[-place])
        values = next(iter(sets.values()))
        alike = all(sorted(found) == sorted(values) for found in sets.values())
        if alike and len(set(values)) == len(values) > 1 and not {value.lower() for value in values} & set(PART_WORDS):
            return NamePattern(values, list(sets))
    return None


def lines_match(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether lines belong together: as many, and long ones with long ones."""
    if len(one) != len(other) or len(one) < MIN_ALIGNED_LINES:
        return False
    lengths = np.log1p([[len(line) for line in lines] for lines in (one, other)])
    return bool(lengths.std(1).min() > 0 and np.corrcoef(lengths)[0, 1] > MIN_LENGTH_CORRELATION)


def are_translations(found: NamePattern) -> bool:
    """Whether files that differ in a part of their names are translations of each other."""
    if LANGUAGE_CODES.issuperset(found.values):
        return True
    first, second = (read_lines(Path(found.names[0].replace(COLUMN_MARK, value))) for value in found.values[:2])
    return not CLASS_NAMES.issuperset(found.values) and lines_match(first, second)


def tab_separated_columns(path: Path) -> list[str]:
    """Names of the columns of a file whose lines are pairs with a tab between; nothing if they are not."""
    if form_of(path, read_text(path)) != "tsv":
        return []
    rows = [line.split("\t") for line in read_lines(path) if line.strip()]
    if {len(row) for row in rows} != {2}:
        return []
    head = [cell.strip() for cell in rows[0]]
    if LANGUAGE_CODES.issuperset(head):
        return head
    varied = all(2 * len({row[place] for row in rows}) > len(rows) for place in (0, 1))
    worded = all(sum(" " in row[place].strip() for row in rows) > 0.5 * len(rows) for place in (0, 1))
    return ["source", "target"] if varied and worded and lines_match(*zip(*rows)) else []


def is_tagged(path: Path) -> bool:
    """Whether a file has a word a line with a tag behind, and empty lines between sentences."""
    name = path.with_suffix("") if path.suffix == ".gz" else path
    if name.suffix.lower() in TAGGED_FORMATS:
        return True
    lines = [line.strip() for line in read_text(path).split("\n", 20_000)[:20_000]]
    rows = [re.split(r"[ \t]+", line) for line in lines if line and not line.startswith("-DOCSTART-")]
    if len(rows) < 10 or "" not in lines[:-1] or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return False
    tags = {row[-1] for row in rows}
    return len(tags) <= 0.2 * len(rows) and ("O" in tags or len(tags) < 100 < len(rows))


TEXT = Guess(text_recipe)
