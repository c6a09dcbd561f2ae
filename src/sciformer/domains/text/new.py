"""Guessed recipes for text: language model, translation, classifier or tagger."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data.columns import Table
from ...data.readers.part_names import name_words, part_of
from ...data.readers.text_parts import Errors, read_lines, read_text
from ...data.source import pieces
from ...errors import UserError
from ...files.formats.delimited import bare_suffix, form_of, is_number
from ...inspection.cost import format_large
from ...metrics.text import marks_entity
from ...recipe import guess
from ...recipe.given import Given
from ...recipe.page import Found, Page
from ...recipe.registry import names as known_kinds
from .readers.labelled import Lines
from .readers.pairs import COLUMN_MARK, Parallel
from .readers.roles import PAIRS, Contents, find_header, find_role, find_texts
from .readers.running import TextFiles
from .readers.tagged import Columns
from .tokens import text_column

MAX_SAMPLE_BYTES = 1 << 25  # bytes of text used for the statistics
MAX_ROWS = 2000  # rows of a table used to find its columns
MAX_CHARACTERS = 1000  # with more different characters, tokens are bytes
MIN_TRAINING_CHARACTERS = 500  # smallest text to train on
MAX_LINES = 512  # separate lines in a batch
MIN_SPLIT_CHARACTERS = 200_000  # smallest text to split off a test part
GPT_SIZES: guess.Sizes = {0: (64, 2, 4), 200_000: (128, 4, 4), 10_000_000: (384, 6, 6)}  # by number of characters
GPT_TRAINING = {0: (500, 32, 12), 20_000: (1000, 64, 12), 200_000: (2000, 64, 12), 10_000_000: (5000, 256, 64)}
"""Steps, context and batch size, by the smallest number of characters."""
ENCODER_SIZES: guess.Sizes = {0: (64, 2, 4), 2000: (128, 2, 4), 50_000: (256, 4, 4)}  # by number of texts
ENCODER_BATCHES = {0: 8, 320: 32}


def guess_text(names: list[str], paths: list[Path], given: Given) -> Page:
    """Guess a recipe for text files: translator, classifier, tagger or language model."""
    kind, errors = given.get("data.kind"), given.get("data.errors", "strict")
    found = find_name_pattern(paths) if len(paths) > 1 else None
    if kind in (None, "lines") and found and CLASS_NAMES.issuperset(found.values):
        return guess_classifier(given.parts(found.names), paths, given, found.values)
    if found and (kind == "parallel" or (kind is None and are_translations(found, errors))):
        return guess_translation(given.parts(found.names), given.listed("data.columns") or found.values, paths, given)
    parts = given.parts([str(path) for path in paths])
    if kind is None:
        check_not_numbers(paths[0], errors)
    if kind == "conll" or (kind is None and is_tagged(paths[0], errors)):
        return guess_tagger(parts, paths, given)
    if kind in (None, "parallel"):
        columns = given.listed("data.columns") if kind else []
        if columns := columns or tab_separated_columns(paths[0], errors):
            return guess_translation(parts, columns, paths, given)
    if kind == "lines" or (kind is None and all(form_of(path, read_text(path, errors)) for path in paths)):
        return _guess_table(parts, paths, given)
    return _guess_running_text(names, parts, paths, given)


def _guess_table(parts: dict[str, list[str]], paths: list[Path], given: Given) -> Page:
    """Guess a recipe for a table of texts.

    Texts with labels or values give a classifier or a regression, texts alone a language model.
    """
    section = given.section(Lines, {"kind": "lines"}, **guess.part_fields({"train": parts["train"]}))
    names, rows = section.named_rows(parts["train"][0])
    if not rows or len(rows[0]) > 1:
        return guess_classifier(parts, paths, given)
    table = section.read(parts["train"]).load(0)
    seen = _TextCounts([table])
    data = [Found("data.kind", "lines", "a table with a single column of texts"), *guess.files(parts)]
    page = _guess_gpt(paths, seen, seen.total_characters(0), data, given, "texts in a table")
    return replace(page, roles={"text": names[0]} if names else {})


def _describe_objective(given: Given, kind: str, why: str) -> str:
    asked = given.get("objective.kind")
    return f"Objective {kind}: {why}." if asked in (None, kind) else f"Objective {asked}: given."


def _load(section: Any) -> tuple[dict[str, Any], int, list[str]]:
    """Load training samples; also return their number and the notes of the reader."""
    opened = section.open()
    source = opened.sources["train"]
    return dict(source.load(0)), guess.check_count(sum(source.sizes), "samples"), opened.notes


# Language models


def _guess_running_text(names: list[str], parts: dict[str, list[str]], paths: list[Path], given: Given) -> Page:
    parts = parts if len(parts) > 1 else {"train": names}
    section = given.section(TextFiles, {"kind": "text"}, files=parts["train"], valid=[], test=[], extra_parts={})
    opened = section.open()
    size = sum(path.stat().st_size for path in paths if len(parts) == 1 or str(path) in parts["train"])
    seen = _TextCounts(table for source in opened.sources.values() for table in pieces(source))
    characters, lines = seen.total_characters(size), len(seen.lengths)
    alone = lines >= 100 and seen.blanks < 0.1 * lines
    why = f"{lines:,} lines without spaces: each line is a text" if alone else "running text"
    documents = Found("data.documents", "line" if alone else "file", f"{why} (file, line or paragraph)")
    keep = characters >= MIN_SPLIT_CHARACTERS and len(parts) == 1
    split = guess.split((), characters, "characters") if keep else []
    longest = int(np.quantile(seen.lengths, 0.99)) if alone else 0
    data = [*guess.files(parts), documents, *split]
    held = 0.1 * ("valid" not in parts) + 0.1 * keep  # as in `split`, or in the base recipe
    what = "separate lines" if alone else "running text"
    return _guess_gpt(paths, seen, characters, data, given, what, longest, held)


class _TextCounts:
    """Statistics of characters and lines in the first `MAX_SAMPLE_BYTES` of the texts."""

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
        """Number of characters in files of `size` bytes, extrapolated from the sample."""
        found = self.characters
        if self.read > MAX_SAMPLE_BYTES:
            found = max(found, int(found * size / self.read))
        if found < MIN_TRAINING_CHARACTERS:
            message = f"a text to train on must have at least {MIN_TRAINING_CHARACTERS} characters, not {found}"
            raise UserError(message, hint="Add more text.")
        return found


def _guess_gpt(
    paths: list[Path],
    seen: _TextCounts,
    characters: int,
    data: list[Found],
    given: Given,
    what: str,
    longest: int = 0,
    held: float = 0.1,
) -> Page:
    """Guess a recipe of a GPT.

    longest   99 % quantile of the text lengths if each line is a text, otherwise 0
    held      share of the text for validation and test
    """
    different, amount = len(seen.letters), f"{format_large(characters)} characters"
    steps, context, batch = guess.at_count(GPT_TRAINING, characters)
    unit, why = "characters", f"{different} different characters"
    if different > MAX_CHARACTERS:
        unit, why = "bytes", f"{different:,} different characters are too many; UTF-8 has 256 bytes"
    reason = f"context length in {unit}"
    mean = characters / max(1, len(seen.lengths)) if longest else context
    if longest:  # as many characters in a batch as of running text
        batch = int(np.clip(batch * context // max(1, mean), batch, MAX_LINES))
    if longest and unit == "characters":
        context = min(512, max(8, -(-longest // 8) * 8))
        reason = f"99 % of the lines have at most {longest} characters"
    times = steps * batch * min(context, mean) / (characters * (1 - held))
    found = [
        Found("base", "text/gpt-char", "recipe with the other keys"),
        *data,
        Found("tokens.unit", unit, why),
        Found("tokens.context", context, reason),
        *guess.model(characters, "characters", GPT_SIZES, 0.1 if characters < MIN_SPLIT_CHARACTERS else None),
        Found("train.steps", steps, f"about {times:.3g} passes over the training part"),
        Found("train.batch", batch),
        *guess.schedule(steps),
    ]
    notes = [f"Found: {amount} of {what} in UTF-8, {different} different characters."]
    if characters >= max(GPT_SIZES):
        notes.append("Training on a CPU takes hours; model.dim 128 and tokens.context 64 are faster.")
    notes.append(_describe_objective(given, "next_token", "the text has no labels, no tags and no translation"))
    return Page("GPT", paths, amount, notes, "text/gpt-char", found)


# Encoders


def _encoder_keys(texts: Sequence[str], count: int, unit: str, lower: bool, parts: float = 1.6) -> list[Found]:
    """Recipe keys of an encoder on subwords, with a context for 99 % of the texts.

    parts  expected number of subwords per word
    """
    different = len({word for text in texts for word in text.split()})
    size = _round_up(different / 2, (500, 1000, 2000, 4000, 8000, 16000))
    long = int(np.quantile([len(text.split()) for text in texts], 0.99))
    context = _round_up(parts * long + 2, (16, 32, 64, 128, 256, 512))
    return [
        Found("tokens.kind", "text"),
        Found("tokens.unit", "wordpiece", "subwords, so that no word is unknown (or words, bpe, unigram, characters)"),
        Found("tokens.vocabulary", size, f"maximum; texts have {different:,} different words"),
        Found("tokens.lower", lower, "ignore upper case" if lower else "upper case marks names"),
        Found("tokens.context", context, f"99 % of the texts have at most {long} words"),
        Found("model.kind", "encoder", "every token attends to all tokens"),
        *guess.model(count, unit, ENCODER_SIZES, 0.2),
        Found("train.learning_rate", 5e-4, "half the default, for random initial weights and little data"),
        Found("train.min_lr_ratio", 0.0),
    ]


def _round_up(number: float, steps: Sequence[int]) -> int:
    return next((step for step in steps if step >= number), steps[-1])


def guess_classifier(parts: dict[str, list[str]], paths: list[Path], given: Given, classes: Sequence[str] = ()) -> Page:
    """Guess a recipe of an encoder for the label or value of a text."""
    files = {name: list[str]() for name in classes}
    options = {"kind": "lines", "classes": files}
    fixed = {**guess.part_fields(parts), "labels_per_class": None}
    roles = Roles() if classes else find_roles(given.section(Lines, options, **fixed), parts["train"][0], given)
    table, count, told = _load(given.section(Lines, {**options, **roles.keys}, **fixed))
    texts = ["text", *roles.texts[1:]]
    ask, label = _find_question({name: column for name, column in table.items() if name not in texts}, count, given)
    values = ask.kind == "regress"
    columns = [f"`{name}` ({len(np.unique(column))} different)" for name, column in table.items() if name not in texts]
    found = [
        Found("data.kind", "lines", "texts with a label"),
        *guess.files(parts),
        Found("data.classes", files or None, f"one file per class; the class replaces {COLUMN_MARK} in the file names"),
        *(Found(f"data.{key}", value, roles.why.get(key, "")) for key, value in roles.keys.items()),
        *guess.split(parts, count, "texts", "equal ones"),
        Found("tokens.column", texts if len(texts) > 1 else None, "with a separator between them"),
        *_encoder_keys([" ".join(row) for row in zip(*(table[name] for name in texts))], count, "texts", lower=True),
        *guess.training(count, 20 if count < 2000 else 10, ENCODER_BATCHES, "loss" if values else "accuracy", parts),
        *ask.found,
    ]
    notes = [f"Found: {count:,} texts, with columns {guess.list_names(columns)}.", *ask.notes, *told]
    notes.append(_describe_objective(given, ask.kind, ask.found[0].why))
    theirs = roles.label if label == "label" and roles.label else label
    shown = {"text": " and ".join(map(roles.describe, roles.texts))} if roles.texts else {}
    shown |= {"target" if values else "label": roles.describe(theirs)} if theirs and not classes else {}
    unused = [name for name in roles.names if name not in (*roles.texts, theirs)]
    return Page(f"{theirs} of texts", paths, f"{count:,} texts", notes, "text/sentiment-scratch", found, shown, unused)


class Roles(NamedTuple):
    """Roles of the columns of a table.

    names    names of all columns
    texts    columns with texts; the reader renames the first column to `text`
    label    column with the label; the reader renames it to `label`
    keys     keys of the section `data` for columns that the reader cannot find
    why      reason for the role of a column, or for a key
    """

    names: Sequence[str] = ()
    texts: Sequence[str] = ()
    label: str = ""
    keys: Mapping[str, Any] = {}
    why: Mapping[str, str] = {}

    def describe(self, column: str) -> str:
        """Name of a column, and the reason for its role."""
        why = self.why.get(column, "")
        return f"{column} ({why})" if why and column not in ("text", "label") else column


def find_roles(section: Lines, file: str, given: Given) -> Roles:
    """Find the roles of the columns of a file by their names, or by their contents."""
    head, rows = section.named_rows(file)
    width = len(rows[0]) if rows else len(head)
    names = head or [f"column_{number}" for number in range(width)]
    contents = {name: Contents.of([row[place] for row in rows[:MAX_ROWS]]) for place, name in enumerate(names)}
    _check_no_tagged_words(file, head, rows[:MAX_ROWS])
    texts, how = [], "given"
    if name := given.get("data.text"):
        texts = [str(name)]
    elif pair := next((pair for pair in PAIRS if {*pair} <= {name.lower() for name in head}), ()):
        texts, how = [next(name for name in head if name.lower() == one) for one in pair], "by their names"
    else:
        hits = [name for name in find_role("text", head) if not contents[name].numbers]
        texts, how = hits[:1], "by its name"
        if len(hits) != 1:
            texts, how = find_texts({name: contents[name] for name in hits or names})[:1], "the longest texts"
    if not texts:
        listed = ", ".join(f"`{name}` ({describe_contents(one)})" for name, one in contents.items())
        message = f"{file} has no column of texts; its columns are {listed}"
        raise UserError(message, hint="Choose a column with --data.text NAME.", key="data.text", file=file)
    rest = [name for name in names if name not in texts]
    label, why = str(given.get("data.label") or ""), dict.fromkeys(texts, how if head else "by its contents")
    if not label:
        hits = find_role("label", rest) if head else [name for name in rest if _may_be_classes(contents[name])]
        label = next((name for name in hits if _may_be_classes(contents[name])), next(iter(hits), ""))
    if label:
        why[label] = "given" if "data.label" in given else "by its name" if head else "few different values"
    keys: dict[str, Any] = {}
    if head:
        found = {"text": find_role("text", head), "label": find_role("label", [n for n in head if n != texts[0]])}
        keys = {role: name for role, name in (("text", texts[0]), ("label", label)) if name and found[role] != [name]}
    elif width > 1 and (width > 2 or not label):
        keys = {"columns": [{texts[0]: "text", label: "label"}.get(name, name) for name in names]}
        why["columns"] = "no header line; names in the order of the columns"
    return Roles(names, texts, label, keys, {**why, **{key: why.get(name, "") for key, name in keys.items() if head}})


def describe_contents(one: Contents) -> str:
    """Describe the contents of a column in words."""
    return "numbers" if one.numbers else f"{one.different:,} different values"


def _may_be_classes(one: Contents) -> bool:
    """Whether the values of a column may be classes: few and repeated values."""
    return 2 <= one.different <= min(guess.MAX_CLASSES, max(2, one.count // 2))


def _check_no_tagged_words(file: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    words, tags = find_role("word", head), find_role("tag", head)
    listed = bool(rows) and any(cell.startswith("[") and cell.endswith("]") for cell in rows[0])
    column = [row[-1] for row in rows]
    tagged = len(rows) >= guess.MIN_SAMPLES and all(map(marks_entity, column)) and len(set(column)) > 1
    if (words and tags) or (tagged and all(" " not in cell for row in rows for cell in row)):
        form = "lists of words and tags" if listed else "a word and a tag in each row"
        message = f"{file} has {form}, but words with tags are only read from CoNLL files"
        hint = "Write a word, a tab and its tag in each line, and an empty line after each sentence."
        raise UserError(message, hint=hint, file=file)


def _find_question(columns: Mapping[str, Any], count: int, given: Given) -> tuple[guess.Question, str]:
    """Choose the objective for labelled texts, and the column of the target."""
    sizes = {name: len(np.unique(column)) for name, column in columns.items()}
    real = [name for name, column in columns.items() if column.dtype.kind == "f" and np.isfinite(column).all()]
    most = min(guess.MAX_CLASSES, max(2, count // 2))
    few = [name for name, size in sizes.items() if 2 <= size <= most and name not in real]
    first = next((name for name in ("label", *few, *real) if name in few or name in real), "")

    def classify() -> guess.Question | str:
        label = given.get("objective.label") or (first if first in few else next(iter(few), ""))
        if not label or (label != first and label in few and "objective.kind" not in given):
            listed = ", ".join(f"`{name}` with {size:,}" for name, size in list(sizes.items())[:8])
            found = f"columns with their different values: {listed or 'none besides the text'}"
            return f"No classes: no column of the {count:,} texts has 2 to {most:,} different values; {found}."
        shown = ", ".join(map(str, np.unique(columns[label])[:8])) if label in columns else ""
        asked = guess.classify(label, f"`{label}` has {sizes.get(label, 'some')} different values: {shown}")
        return asked._replace(notes=guess.rare_classes(columns[label], "texts") if label in columns else [])

    def regress() -> guess.Question | str:
        aim = next(iter(given.listed("objective.targets")), first if first in real else next(iter(real), ""))
        why = f"`{aim}` has {sizes.get(aim, 'some')} different values"
        return guess.regress(aim, why) if aim else "No values: no column has real numbers."

    ask = guess.choose(given, {"classify": classify, "regress": regress})
    return ask, ask.column


def guess_tagger(parts: dict[str, list[str]], paths: list[Path], given: Given) -> Page:
    """Guess a recipe for tagging words with an encoder."""
    suffix = bare_suffix(paths[0])
    words, tags = TAGGED_FORMATS.get(suffix, (0, None))
    universal = suffix == ".conllu"
    options = {"kind": "conll", "words": words, "tags": tags, "comments": universal}
    table, count, told = _load(given.section(Columns, options, **guess.part_fields(parts)))
    kinds = sorted(set(table["tags"].values.tolist()))
    spans = all(map(marks_entity, kinds))
    texts = [" ".join(words) for words in text_column(table, "words")[0]]
    found = [
        Found("data.kind", "conll", "one word per line, empty lines between sentences"),
        *guess.files(parts),
        Found("data.words", words, "index of the word column"),
        Found("data.tags", tags, "index of the tag column (default: the last)"),
        Found("data.comments", universal or None, "skip lines with # before a sentence"),
        *guess.split(parts, count, "sentences", "equal ones"),
        *_encoder_keys(texts, count, "sentences", lower=False, parts=3),
        *guess.training(count, 20, ENCODER_BATCHES, "entity_f1" if spans else "token_accuracy", parts),
        Found("tokens.column", "words"),
        Found("objective.kind", "tag", "entities, with tags B-... and I-..." if spans else "one tag per word"),
    ]
    amount, number = f"{count:,} sentences", len(table["words"].values)
    notes = [f"Found: {amount}, {number:,} words, {len(kinds)} tags: {', '.join(kinds[:12])}.", *told]
    why = "a word and its tag in each line" + ("; the tags mark entities" if spans else "")
    notes.append(_describe_objective(given, "tag", why))
    return Page("tags of words", paths, amount, notes, "text/tagging", found)


# Translation


def guess_translation(parts: dict[str, list[str]], columns: list[str], paths: list[Path], given: Given) -> Page:
    """Guess a recipe for translation from the first column to the second."""
    section = given.section(Parallel, {"kind": "parallel", "columns": columns}, **guess.part_fields(parts))
    table, count, told = _load(section)
    source, target = columns[:2]
    words = {name: sum(len(text.split()) for text in table[name]) for name in (source, target)}
    different = len({word for name in words for text in table[name] for word in text.split()})
    base, sizes = "text/transformer-tiny", [500, 1000, 2000, 5000, 10_000]
    if count >= 500_000:
        base, sizes = "text/transformer-base", [37_000]
    vocabulary = _round_up(different / 3, sizes)
    epoch = int(1.5 * max(words.values()))  # tokens, with some padding
    tokens = _round_up(epoch / 20, (512, 1024, 2048, 4096, 8192))
    steps = int(np.clip(100 * epoch // tokens, 500, 8000)) if base.endswith("tiny") else 100_000
    marked = any(COLUMN_MARK in name for name in parts["train"])
    how = f"replace {COLUMN_MARK} in the file names" if marked else "tab-separated columns"
    shared = (
        ("learn", [source, target], "one vocabulary for both, so names can be copied"),
        ("vocabulary", vocabulary, f"maximum; texts have {different:,} different words"),
    )
    found = [
        Found("base", base, f"for {count:,} pairs; recipe with the other keys"),
        Found("data.kind", "parallel", "parallel texts"),
        Found("data.columns", columns, f"{how}; swap them in `tokens` below for the other direction"),
        *guess.files(parts),
        *guess.split(parts, count, "pairs", "equal ones"),
        Found("tokens.source", None, "source text"),
        Found("tokens.target", None, "translation"),
        *(
            Found(f"tokens.{stream}.{key}", value, why)
            for stream, column in (("source", source), ("target", target))
            for key, value, why in (("column", column, ""), *shared)
        ),
        Found("train.steps", steps, "`sciformer check` prints the number of passes"),
        Found("train.tokens", tokens, "source or target tokens per batch, padding included"),
        Found("train.warmup", min(4000, steps // 4), "a quarter of the steps" if steps < 16_000 else "as in the paper"),
        Found("train.evaluate_every", max(1, steps // 16)),
        Found("train.save_every", max(1, steps // 80), "the last checkpoints are averaged at the end"),
    ]
    counted = f"{words[source]:,} and {words[target]:,} words, {different:,} different"
    notes = [f"Found: {count:,} pairs of lines, {counted}.", *told]
    pair = "files of equal length with lines that match" if marked else "two texts in each line, separated by a tab"
    notes.append(_describe_objective(given, "translate", pair))
    return Page(f"{source} to {target}", paths, f"{count:,} pairs", notes, base, found)


# Recognition of text formats by name and content


_CODES = """src tgt trg source target af am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gd gl gu ha
    he hi hr hu hy id ig is it ja ka kk km ko la lo lt lv mk ml mn mr ms mt my nb ne nl nn no pa pl pt ro ru si sk sl so
    sq sr sv sw ta te th tl tr uk ur uz vi xh yo zh zu"""
LANGUAGE_CODES = frozenset(_CODES.split())
_LANGUAGES = """arabic chinese czech danish dutch english finnish french german greek hebrew hindi hungarian italian
    japanese korean latin norwegian polish portuguese romanian russian spanish swedish turkish ukrainian deutsch
    english español français italiano nederlands polski português input output translation original"""
LANGUAGE_WORDS = LANGUAGE_CODES | {*_LANGUAGES.split()}
"""Words in the column names of translations."""
CLASS_NAMES = {"pos", "neg", "positive", "negative", "neutral", "ham", "spam", "true", "false", "real", "fake"}
TAGGED_FORMATS = {".conll": (0, None), ".conllu": (1, 3), ".iob": (0, None), ".iob2": (0, None), ".bio": (0, None)}
MIN_LENGTH_CORRELATION = 0.3  # smallest correlation of line lengths of translations
MIN_ALIGNED_LINES = 8  # smallest number of lines for a correlation


# A hyphen between a language and a country (en-US) does not separate words.
NAME_SEPARATOR = re.compile(r"([/.]|[-_](?!(?<=[._/-][a-z]{2}[-_])[A-Z]{2}(?![A-Za-z])))")


class NamePattern(NamedTuple):
    """Pattern of file names with one differing word.

    values   values of the word, such as en and de
    names    file names with `{}` in place of the word
    """

    values: list[str]
    names: list[str]


def find_name_pattern(paths: Sequence[Path]) -> NamePattern | None:
    """Find the differing word in file names (train.en, train.de); None if unclear.

    The word may be a folder (en/train.txt, de/train.txt). All sets of files must have the same words.
    """
    words = [NAME_SEPARATOR.split(path.as_posix()) for path in paths]
    for place in range(1, max(map(len, words)) + 1, 2):
        sets: dict[str, list[str]] = {}
        for parts in words:
            if len(parts) < place:
                return None
            name = "".join([*parts[: len(parts) - place], COLUMN_MARK, *parts[len(parts) - place + 1 :]])
            sets.setdefault(name, []).append(parts[-place])
        values = next(iter(sets.values()))
        alike = all(sorted(found) == sorted(values) for found in sets.values())
        told = any(part_of(value) for value in values)
        if alike and len(set(values)) == len(values) > 1 and not told:
            return NamePattern(values, list(sets))
    return None


def lines_match(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether lines may be translations: equal numbers and correlated lengths."""
    if len(one) != len(other) or len(one) < MIN_ALIGNED_LINES:
        return False
    lengths = np.log1p([[len(line) for line in lines] for lines in (one, other)])
    return bool(lengths.std(1).min() > 0 and np.corrcoef(lengths)[0, 1] > MIN_LENGTH_CORRELATION)


def are_translations(found: NamePattern, errors: Errors = "strict") -> bool:
    """Whether the files of a name pattern are translations of each other."""
    if LANGUAGE_CODES.issuperset(re.split("[-_]", value)[0].lower() for value in found.values):
        return True
    first, second = (read_lines(Path(found.names[0].replace(COLUMN_MARK, value)), errors) for value in found.values[:2])
    return not CLASS_NAMES.issuperset(found.values) and lines_match(first, second)


def tab_separated_columns(path: Path, errors: Errors = "strict") -> list[str]:
    """Column names of a file with tab-separated translations; empty for other files."""
    if form_of(path, read_text(path, errors)) != "tsv":
        return []
    rows = [line.split("\t") for line in read_lines(path, errors) if line.strip()]
    if {len(row) for row in rows} != {2}:
        return []
    head = [cell.strip() for cell in rows[0]]
    if LANGUAGE_CODES.issuperset(head):
        return head
    named = all(LANGUAGE_WORDS & {*name_words(cell)} and len(cell.split()) < 3 for cell in head) and head[0] != head[1]
    if not named and find_role("label", find_header(rows)):
        return []
    rows = rows[named:]
    varied = all(2 * len({row[place] for row in rows}) > len(rows) for place in (0, 1))
    worded = all(sum(" " in row[place].strip() for row in rows) > 0.5 * len(rows) for place in (0, 1))
    if not (varied and worded and lines_match(*zip(*rows))):
        return []
    return head if named else ["source", "target"]


def is_tagged(path: Path, errors: Errors = "strict") -> bool:
    """Whether a file has a word and a tag per line, and empty lines between sentences."""
    if bare_suffix(path) in TAGGED_FORMATS:
        return True
    if bare_suffix(path) in (".csv", ".jsonl", ".ndjson", ".json"):
        return False
    lines = [line.strip() for line in read_text(path, errors).split("\n", 20_000)[:20_000]]
    rows = [re.split(r"[ \t]+", line) for line in lines if line and not line.startswith("-DOCSTART-")]
    if len(rows) < 10 or "" not in lines[:-1] or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return False
    tags = {row[-1] for row in rows}
    return len(tags) <= 0.2 * len(rows) and ("O" in tags or len(tags) < 100 < len(rows))


def check_not_numbers(path: Path, errors: Errors = "strict") -> None:
    """Refuse a table of numbers."""
    lines = read_text(path, errors).split("\n", MAX_ROWS)[:MAX_ROWS]
    filled = [line for line in lines if line.strip() and not line.startswith("#")]
    rows = [re.split(r"[,;|\s]+", line.strip(",;| \t")) for line in filled]
    if len(rows) > 2 and not all(map(is_number, rows[0])):  # a header line
        rows = rows[1:]
    widths = {len(row) for row in rows}
    if len(rows) < 3 or widths == {1} or len(widths) > 1 or not all(is_number(cell) for row in rows for cell in row):
        return
    missing = sum(cell.lower() == "nan" for row in rows for cell in row)
    nan = f" ({missing:,} of them NaN)" if missing else ""
    message = f"{path} is not text, but a table of numbers, {widths.pop()} in each line{nan}"
    kinds = ", ".join(name for name in known_kinds("new") if name != "text")
    hint = f"Use another KIND in `sciformer new KIND {path}`: {kinds}. To train on its characters: --data.kind text"
    raise UserError(message, hint=hint, file=path)


TEXT = guess.Guess(guess_text)
