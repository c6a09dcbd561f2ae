"""Text: a token is a character, a byte, a word or a part of one; where it stands in the line is where it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field
from torch import nn

from ...data.batch import Batch, Stream
from ...data.columns import Array, Lists, Table
from ...data.random import SampleRandom
from ...data.readers.text_parts import strings
from ...errors import UserError, one_of
from ...tokens.base import Tokens
from ...tokens.protocols import Editable, Exportable, Maskable, Readout, Textual
from . import vocabulary
from .layers import TextEmbedding, TextReadout
from .vocabulary import SPECIAL_TOKENS, Coder, Encoded, TokenNames

DEFAULT_VOCABULARY = 10_000  # subwords, unless a number is given
SUBWORD_UNITS = ("bpe", "wordpiece", "unigram")


class Text(Textual, Maskable, Exportable, Editable):
    """Characters, bytes, words or subwords of text."""

    hides: ClassVar[tuple[str, ...]] = ("ids",)
    host_columns: ClassVar[tuple[str, ...]] = ("word", "part")
    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = (
        *("column", "learn", "begin", "end", "context", "step", "tie", "bias", "join"),
    )
    has_mask_vector: ClassVar[bool] = False
    changeable_columns: ClassVar[tuple[str, ...]] = ("ids",)

    unit: Literal["characters", "bytes", "words", "bpe", "wordpiece", "unigram"] = "characters"
    """Unit of a token: characters (of the training text), bytes (of UTF-8), words (between spaces), or learned
    subwords: bpe (byte pairs), wordpiece (BERT), unigram (SentencePiece) (default: characters)."""
    column: str | list[str] = "text"
    """Column of the text, or a list of columns to join with a separator token (default: text)."""
    learn: list[str] = Field(default_factory=list)
    """Columns from which the vocabulary is learned (default: `column`). Two streams with the same `learn` share one
    vocabulary."""
    vocabulary: int | None = Field(default=None, ge=1)
    """Vocabulary size, with special tokens: the most frequent words (default: all), or the number of subwords (default:
    10,000). Other vocabularies are padded to this size; a multiple of 64 is fast on a GPU."""
    minimum: int = Field(default=1, ge=1)
    """Minimum frequency of a word; rarer words are unknown (default: 1). Subwords must occur at least twice."""
    begin: bool = False
    """Whether to add a special token before each text (default: false)."""
    end: bool = False
    """Whether to add a special token after each text (default: false)."""
    lines: bool = False
    """Whether the end of each line is a token too, for `unit: words`, as in the usual count of WikiText (default:
    false)."""
    join: bool = False
    """Whether to concatenate all texts and cut windows across them, as in GPT-2 (default: false, a window has tokens of
    one text). With `end`, a token separates the texts."""
    lower: bool = False
    """Whether to convert text to lower case (default: false)."""
    unicode_form: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normal form, for characters that can be written in two ways (default: none)."""
    tokenizer: str = ""
    """Hugging Face tokenizer.json to use instead of a learned vocabulary (default: none). It replaces `unit`, `lower`
    and `unicode_form`."""
    special: dict[str, str] = Field(default_factory=dict)
    """Names of special tokens by role: padding, unknown, begin, end, mask, separator (default: <pad>, <unk>, <s>, </s>,
    <mask>, <sep>)."""
    context: int = Field(default=256, ge=1)
    """Context length: maximum number of tokens per window; longer texts are cut into windows (default: 256)."""
    step: int | None = Field(default=None, ge=1)
    """Stride of the training windows in tokens (default: 1; the window length for large texts)."""
    tie: bool = True
    """Whether the output layer uses the weights of the embedding (weight tying) (default: true)."""
    bias: bool = False
    """Whether the output layer has a bias for each token, as in BERT (default: false)."""
    scale: bool = False
    """Whether to multiply the embedding by the square root of its width, as in the Transformer (arXiv 1706.03762)
    (default: false)."""

    @property
    def source_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.column,) if isinstance(self.column, str) else tuple(self.column)

    # The vocabulary

    def fit(self, tables: Iterable[Table]) -> None:
        if self.tokenizer:
            self._read()
        elif self.unit in SUBWORD_UNITS:
            from .subwords import learn_tokenizer

            sound = ([self._sound(text) for text in texts] for texts in self._learned_from(tables))
            size = self.vocabulary or DEFAULT_VOCABULARY
            self.state["tokenizer"] = learn_tokenizer(
                self.unit, sound, size, self.minimum, self._names, self.lower, self.unicode_form
            )
        elif self.unit == "words":
            special = {name for _, name in self._names}
            words = (  # of texts that are split already, blanks inside a word part nothing («1 000»)
                self._sound(text).split() if isinstance(text, str) else [self._sound(word) for word in text]
                for texts in self._learned_from(tables, split=True)
                for text in texts
            )
            self.state["words"] = "\n".join(vocabulary.common_words(words, self.vocabulary, self.minimum, special))
        elif self.unit == "characters":
            texts = (self._sound(text) for some in self._learned_from(tables) for text in some)
            self.state["characters"] = vocabulary.alphabet(texts)

    def _learned_from(self, tables: Iterable[Table], split: bool = False) -> Iterator[list[Any]]:
        """The texts of each column; those that are split into words already are joined, unless `split`."""
        for table in tables:
            for name in self.learn or self.source_columns:
                texts, words = text_column(table, name)
                yield [" ".join(text) for text in texts] if words and not split else texts

    def _read(self) -> None:
        from .subwords import read_tokenizer_text

        if self.lower or self.unicode_form != "none":
            given = "tokens.lower" if self.lower else "tokens.unicode_form"
            raise UserError(
                f"{given} cannot be set beside tokens.tokenizer, because a tokenizer.json has its own rules for case "
                "and form",
                key=given,
                file=self.tokenizer,
            )
        self.state["tokenizer"] = read_tokenizer_text(self.tokenizer)
        if not self.writable.any():
            raise UserError(
                f"{self.tokenizer} has no token that stands for text in its vocabulary",
                key="tokens.tokenizer",
                file=self.tokenizer,
            )

    def absolute_paths(self) -> Self:
        if not self.tokenizer:
            return self
        return self.model_copy(update={"tokenizer": str(Path(self.tokenizer).expanduser().resolve())})

    def same_vocabulary(self, other: Tokens) -> bool:
        return isinstance(other, Text) and self._lesson == other._lesson

    @property
    def _lesson(self) -> tuple[Any, ...]:
        columns = tuple(sorted(set(self.learn or self.source_columns)))
        rules = (self.lower, self.unicode_form, self._names, self.vocabulary, self.minimum)
        own = () if self.tokenizer or self.unit == "bytes" else columns
        return (self.unit, self.tokenizer, own, self._framed, *rules)

    @property
    def _framed(self) -> bool:
        """Whether characters and bytes have tokens that part texts; all other units do."""
        letters = self.unit in ("characters", "bytes") and not self.tokenizer
        return not letters or bool(self.begin or self.end or self.learn or len(self.source_columns) > 1)

    @property
    def _names(self) -> TokenNames:
        for role in self.special:
            one_of("a role of a special token in tokens.special", role, SPECIAL_TOKENS, key="tokens.special")
        return tuple((SPECIAL_TOKENS | self.special).items())

    @property
    def coder(self) -> Coder:
        if self.tokenizer or self.unit in SUBWORD_UNITS:
            from .subwords import load_subwords

            names = tuple(self.special.items()) if self.tokenizer else self._names
            return load_subwords(self._learned("tokenizer"), names, not self.tokenizer)
        if self.unit == "words":
            return vocabulary.word_coder(self._learned("words"), self._names, self.lines)
        characters = None if self.unit == "bytes" else self._learned("characters")
        return vocabulary.character_coder(characters, self._framed, self._names)

    def _learned(self, what: str) -> str:
        if what not in self.state:
            raise UserError(
                "the tokens have no vocabulary yet, because they have not been fitted on a text",
                hint="Call fit, or load a run.",
            )
        return str(self.state[what])

    @property
    def size(self) -> int:
        """The number of different tokens, with those that have a special meaning."""
        least = self.coder.size
        if self.vocabulary is None or (not self.tokenizer and self.unit not in ("characters", "bytes")):
            return least
        if self.vocabulary < least:
            raise UserError(
                f"tokens.vocabulary must be {least} or more to hold the tokens of the text, not {self.vocabulary}",
                key="tokens.vocabulary",
            )
        return self.vocabulary

    @property
    def specials(self) -> dict[str, int]:
        return dict(self.coder.specials)

    @property
    def end_id(self) -> int | None:
        """That of `end`, or of a tokenizer from a file, which was trained with it.

        Other vocabularies may have an end that no text of the training had.
        """
        return self.specials.get("end") if self.end or self.tokenizer else None

    @property
    def letters(self) -> Literal["characters", "bytes", ""]:
        """The unit, if it is one letter."""
        if self.unit == "bytes" and not self.tokenizer:
            return "bytes"
        return "characters" if self.unit == "characters" else ""

    @property
    def writable(self) -> Array:
        return np.pad(self.coder.writable, (0, self.size - self.coder.size))

    @property
    def mask(self) -> int:
        return self.special_id("mask")

    def save(self, path: str | Path) -> None:
        """Write the vocabulary as a tokenizer.json of Hugging Face."""
        (text,) = self.export_files().values()
        Path(path).write_text(text, "utf-8")

    def export_files(self) -> dict[str, str]:
        from .subwords import TOKENIZER_FILE, export_tokenizer

        if self.lines:
            raise UserError("a tokenizer.json cannot hold tokens.lines, ends of lines as tokens", key="tokens.lines")
        frame = {role: self.special_id(role) for role in ("begin", "end") if getattr(self, role)}
        return {TOKENIZER_FILE: export_tokenizer(self.coder, frame, self.lower, self.unicode_form)}

    # From a text to tokens and back

    @property
    def concatenates(self) -> bool:
        return self.join

    def has_marker(self, role: str) -> bool:
        return {"begin": self.begin, "end": self.end}.get(role, True)

    @property
    def window(self) -> int:
        return self.context

    @property
    def stride(self) -> int | None:
        return self.step

    def _sound(self, text: str) -> str:
        """A text as the vocabulary takes it; a tokenizer has rules of its own for the rest."""
        if self.tokenizer or self.unit in SUBWORD_UNITS:
            return vocabulary.clean_text(text)
        return vocabulary.clean_text(text, self.unicode_form, self.lower)

    def encode(self, text: str) -> Array:
        """The ids of a text, without begin and end; what was never seen becomes the unknown token."""
        return self.coder.encode([self._sound(text)])[0][0]

    def decode(self, ids: Any) -> str:
        """The text of ids; special tokens have none, but the unknown one is shown."""
        return self.coder.decode(np.asarray(ids, np.int64).reshape(-1))

    def tokenize(self, table: Table) -> Stream:
        """Column `ids`; with words also `word`, the number of a token's word; of several columns also `part`."""
        texts = []
        for column, split in (text_column(table, name) for name in self.source_columns):
            if split:
                texts.append(self.coder.encode_words([[self._sound(word) for word in words] for words in column]))
            else:
                texts.append(self.coder.encode([self._sound(text) for text in column]))
        runs = [(self._markers("begin", texts[0]), 0)] if self.begin else []
        for number, found in enumerate(texts):
            runs += [(self._markers("separator", found), number - 1)] if number else []
            runs.append((found, number))
        runs += [(self._markers("end", texts[0]), len(texts) - 1)] if self.end else []
        encoded = [one for row in zip(*(found for found, _ in runs)) for one in row]  # row by row, run by run
        lengths = np.array([len(ids) for ids, _ in encoded], np.int64)
        columns = {"ids": _flatten([ids for ids, _ in encoded])}
        if self.coder.words:  # counted on from run to run
            words = [np.full(len(ids), -1, np.int32) if word is None else word for ids, word in encoded]
            counts = np.array([word.max(initial=-1) + 1 for word in words], np.int32).reshape(-1, len(runs))
            before, word = (counts.cumsum(1) - counts).ravel().repeat(lengths), _flatten(words)
            columns["word"] = np.where(word < 0, -1, word + before).astype(np.int32)
        if len(texts) > 1:
            columns["part"] = np.tile(np.array([part for _, part in runs], np.int32), len(texts[0])).repeat(lengths)
        return Stream(columns, lengths.reshape(-1, len(runs)).sum(1))

    def _markers(self, role: str, rows: list[Encoded]) -> list[Encoded]:
        return [(np.array([self.special_id(role)], np.int32), None)] * len(rows)

    def mask_out(self, stream: Stream, tokens: Array) -> dict[str, Array]:
        return {"ids": np.where(tokens, self.mask, stream.columns["ids"]).astype(np.int32)}

    def random_replacement(self, stream: Stream, tokens: Array, rng: SampleRandom) -> dict[str, Array]:
        ids = np.flatnonzero(self.coder.writable).astype(np.int32)
        random = ids[rng.integers("noise", len(ids), stream.lengths)]
        return {"ids": np.where(tokens, random, stream.columns["ids"])}

    def maskable(self, stream: Stream) -> Array:
        """Tokens that stand for text, or for some that is unknown."""
        may = self.writable
        if "unknown" in self.coder.specials:
            may[self.coder.specials["unknown"]] = True
        return may[stream.columns["ids"]]

    def change(self, stream: Stream, token: int, column: str, value: Any) -> Stream:
        """The token of another id, or of a text that is one token."""
        if isinstance(value, str):
            ids = self.encode(value)
            if len(ids) != 1:
                raise UserError(f"{value!r} is {len(ids)} tokens, not one")
            value = int(ids[0])
        if not 0 <= int(value) < self.size:
            raise UserError(f"the ids of tokens are from 0 to {self.size - 1}, not {value}")
        return super().change(stream, token, column, value)

    # Into the model and back

    def embedding(self, dim: int) -> nn.Module:
        return TextEmbedding(self.size, dim, self.scale)

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        return TextReadout(self.size, dim, embedding if self.tie else None, self.bias)

    # For a person to look at

    def token_labels(self, stream: Stream) -> list[str]:
        return self.coder.display_tokens(stream.columns["ids"], stream.columns.get("word"))

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        from .draw import write_lines

        write_lines(axes, self.token_labels(sample.stream), weights, cells=not self.coder.words)


def as_table(texts: list[str]) -> Table:
    """A table of texts, one sample each."""
    return {"text": strings(texts)}


def _flatten(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def text_column(table: Table, name: str) -> tuple[list[Any], bool]:
    """The texts of a column, and whether they are lists of words instead."""
    if name not in table:
        raise UserError(f"column `{name}` is missing; the columns are {', '.join(table)}")
    column = table[name]
    if not isinstance(column, Lists):
        return [str(text) for text in column], False
    words, stops = [str(word) for word in column.values], column.lengths.cumsum().tolist()
    return [words[stop - length : stop] for stop, length in zip(stops, column.lengths.tolist())], True
