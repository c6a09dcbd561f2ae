"""Recipes for texts with an answer: translations, labelled texts, tagged words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.readers.columns import Columns
from ..data.readers.lines import Lines
from ..data.readers.parallel import MARK, Parallel
from ..data.source import Lists, Splits
from ..errors import UserError
from .forms import TAGGED
from .page import NONE, PARTS, WHY, Line, files_of, named, write

MIN_SAMPLES = 10  # samples worth training on
MOST = 1000  # classes


def given(parts: Mapping[str, list[str]]) -> dict[str, Any]:
    """The same as fields of a section, with nothing drawn for what has no files."""
    more = {part: names for part, names in parts.items() if part not in PARTS.values()}
    files = {"files": parts["train"], "valid": parts.get("valid", []), "test": parts.get("test", [])}
    return {**files, "more": more, "split": NONE}


def _split(parts: Mapping[str, list[str]], count: int, unit: str) -> list[Line]:
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


def _counted(opened: Splits) -> int:
    count = sum(opened.sources["train"].sizes)
    if count < MIN_SAMPLES:
        raise UserError(f"training needs {MIN_SAMPLES} samples or more, not {count}", hint="Bring more of them.")
    return count


def _round(number: float, steps: Sequence[int]) -> int:
    """The first of the steps that is not less, or the last."""
    return next((step for step in steps if step >= number), steps[-1])


def _learning(count: int, epochs: int, batch: int, best: str) -> list[Line]:
    """Batches and steps for so many samples."""
    steps = max(20, epochs * -(-count // batch))
    return [
        Line("train"),
        Line("steps", steps, f"{epochs} times through the data", 2),
        Line("batch", batch, "", 2),
        Line("rate", 5e-4, "half the default: from random weights, on little data", 2),
        Line("warmup", max(1, steps // 10), "a tenth of the steps", 2),
        Line("floor", 0.0, "", 2),
        Line("best", best, "decides which model is kept", 2),
    ]


def _subwords(texts: Sequence[str], lower: bool, parts: float = 1.6) -> list[Line]:
    """Parts of words, as many as the amount of text bears, and a context that nearly all texts fit into.

    parts    of a word, in the mean of a long text
    """
    counts = np.array([len(text.split()) for text in texts])
    different = len({word for text in texts for word in text.split()})
    size = _round(different / 2, (500, 1000, 2000, 4000, 8000, 16000))
    long = int(np.quantile(counts, 0.99))
    return [
        Line("unit", "wordpiece", "parts of words, so that none is unknown (or words, bpe, unigram, characters)", 2),
        Line("vocabulary", size, f"at most; there are {different:,} different words", 2),
        Line("lower", lower, "large and small letters are alike" if lower else "large letters tell names", 2),
        Line(
            "context", _round(parts * long + 2, (16, 32, 64, 128, 256, 512)), f"99 of 100 have {long} words or fewer", 2
        ),
    ]


def _encoder(count: int, unit: str) -> list[Line]:
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


def translate(parts: dict[str, list[str]], columns: list[str], paths: list[Path]) -> str:
    """A Transformer from the first column to the second."""
    opened = Parallel(kind="parallel", columns=columns, **given(parts)).open()
    count = _counted(opened)
    table: dict[str, Any] = dict(opened.sources["train"].load(0))
    source, target = columns[:2]
    words = {name: sum(len(text.split()) for text in table[name]) for name in (source, target)}
    different = len({word for name in words for text in table[name] for word in text.split()})
    base, size = (
        ("transformer-tiny", (500, 1000, 2000, 5000, 10_000)) if count < 500_000 else ("transformer-base", (37_000,))
    )
    vocabulary = _round(different / 3, size)
    epoch = int(1.5 * max(words.values()))  # tokens, with some padding
    tokens = _round(epoch / 20, (512, 1024, 2048, 4096, 8192))
    steps = int(np.clip(100 * epoch // tokens, 500, 8000)) if base.endswith("tiny") else 100_000
    marked = any(MARK in name for name in parts["train"])
    head = [
        f"A Transformer that translates {source} to {target}, for {named(paths)}, written by `sciformer new text`.",
        f"Found: {count:,} pairs of lines, {words[source]:,} and {words[target]:,} words, {different:,} different.",
        *opened.notes,
        "",
        WHY,
        f"All other keys and their meaning: sciformer recipes text/{base}",
    ]
    how = f"for {MARK} in the names of files" if marked else "the texts in a line, with tabs between"
    learn = Line("learn", [source, target], "one vocabulary for both, so that names are copied", 3)
    lines = [
        Line("base", f"text/{base}", f"for {count:,} pairs; the other keys come from there", 1),
        Line("about"),
        Line("title", f"{source} to {target} on {named(paths)}", "", 2),
        Line("data", f"{count:,} pairs", "", 2),
        Line("data"),
        Line("kind", "parallel", "lines that belong together", 2),
        Line("columns", columns, f"{how}; turn them in tokens below to translate the other way", 2),
        *files_of(parts),
        *_split(parts, count, "pairs"),
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


def classify(parts: dict[str, list[str]], paths: list[Path], classes: Sequence[str] = ()) -> str:
    """An encoder that says which label a text has, or what value."""
    section = Lines(kind="lines", classes={name: [] for name in classes}, **given(parts))
    opened = section.open()
    count = _counted(opened)
    table: dict[str, Any] = dict(opened.sources["train"].load(0))
    label, values, why = _label(table, count)
    found = [f"`{name}` ({len(np.unique(column))} different)" for name, column in table.items() if name != "text"]
    shown = ", ".join(map(str, np.unique(table[label])[:8]))
    head = [
        f"A classifier of texts for {named(paths)}, written by `sciformer new text`.",
        f"Found: {count:,} texts, and beside them {', '.join(found)}.",
        *opened.notes,
        "",
        WHY,
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
        Line("classes", {name: [] for name in classes}, f"a file for each: what stands for {MARK} in their names", 2)
    ]
    lines = [
        Line("about"),
        Line("title", f"{label} of texts in {named(paths)}", "", 2),
        Line("data", f"{count:,} texts", "", 2),
        Line("data"),
        Line("kind", "lines", "texts with a label", 2),
        *files_of(parts),
        *(own if classes else []),
        *_split(parts, count, "texts"),
        Line("tokens"),
        Line("kind", "text", "of the column `text`", 2),
        *_subwords(table["text"], lower=True),
        *_encoder(count, "texts"),
        Line("objective"),
        *objective,
        *_learning(count, 20 if count < 2000 else 10, 32 if count >= 320 else 8, "loss" if values else "accuracy"),
    ]
    return write(head, lines)


def _label(table: Mapping[str, Any], count: int) -> tuple[str, bool, str]:
    """The column to learn, whether it holds values, and why it was taken."""
    columns = {name: column for name, column in table.items() if name != "text"}
    sizes = {name: len(np.unique(column)) for name, column in columns.items()}
    real = [name for name, column in columns.items() if column.dtype.kind == "f" and np.isfinite(column).all()]
    few = [name for name, size in sizes.items() if 2 <= size <= min(MOST, max(2, count // 2)) and name not in real]
    named = [name for name in ("label", *few, *real) if name in few or name in real]
    if not named:
        listed = ", ".join(f"`{name}` with {size:,}" for name, size in sizes.items())
        raise UserError(f"no column has 2 to {MOST:,} different labels, or numbers: there is {listed or 'only `text`'}")
    name = named[0]
    return name, name in real, f"`{name}` has {sizes[name]} different values"


# Tagged words


def tag(parts: dict[str, list[str]], paths: list[Path]) -> str:
    """An encoder that says which tag each word has."""
    suffix = (paths[0].with_suffix("") if paths[0].suffix == ".gz" else paths[0]).suffix.lower()
    words, tags = TAGGED.get(suffix, (0, None))
    universal = suffix == ".conllu"
    opened = Columns(kind="columns", words=words, tags=tags, comments=universal, **given(parts)).open()
    count = _counted(opened)
    table = opened.sources["train"].load(0)
    column, found = table["words"], table["tags"]
    assert isinstance(column, Lists)
    assert isinstance(found, Lists)
    kinds = sorted(set(found.values.tolist()))
    spans = all(kind == "O" or kind[1:2] == "-" for kind in kinds)
    texts = [" ".join(part) for part in np.split(column.values, column.lengths.cumsum()[:-1])]
    head = [
        f"A tagger of words for {named(paths)}, written by `sciformer new text`.",
        f"Found: {count:,} sentences, {len(column.values):,} words, {len(kinds)} tags: {', '.join(kinds[:12])}",
        *opened.notes,
        "",
        WHY,
        "All other keys and their meaning: sciformer recipes text/tagging",
    ]
    where = [
        Line("words", words, "number of the column with the word", 2),
        *([Line("tags", tags, "and with the tag; the last unless given", 2)] if tags is not None else []),
        *([Line("comments", True, "lines with # before a sentence", 2)] if universal else []),
    ]
    lines = [
        Line("about"),
        Line("title", f"tags of words in {named(paths)}", "", 2),
        Line("data", f"{count:,} sentences", "", 2),
        Line("data"),
        Line("kind", "columns", "a word a line, and empty lines between sentences", 2),
        *files_of(parts),
        *where,
        *_split(parts, count, "sentences"),
        Line("tokens"),
        Line("kind", "text", "", 2),
        Line("column", "words", "", 2),
        *_subwords(texts, lower=False, parts=3),
        *_encoder(count, "sentences"),
        Line("objective"),
        Line("kind", "tag", "entities: tags begin with B- and I-" if spans else "a tag for each word", 2),
        *_learning(count, 20, 32 if count >= 320 else 8, "entity_f1" if spans else "token_accuracy"),
    ]
    return write(head, lines)
