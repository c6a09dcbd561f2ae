"""Text tokens: characters, bytes, words or subwords."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field
from torch import nn

from ...data.batch import Batch, Stream
from ...data.columns import Array, Lists, Samples, Table
from ...data.random import SampleRandom
from ...data.readers.text_parts import strings
from ...errors import UserError, one_of
from ...tokens.base import Tokens
from ...tokens.protocols import Editable, Exportable, Maskable, Readout, Textual
from . import vocabulary
from .layers import TextEmbedding, TextReadout
from .vocabulary import SPECIAL_TOKENS, Coder, Encoded, TokenNames

DEFAULT_VOCABULARY = 10_000  # default number of subwords
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
    """Unit of a token (default: characters): characters of the training text, the 256 bytes of UTF-8, words between
    white space, or learned subwords: bpe (byte pairs), wordpiece (BERT), unigram (SentencePiece)."""
    column: str | list[str] = "text"
    """Data column with the text (default: text). Several columns are concatenated, with a separator token
    between two columns."""
    learn: list[str] = Field(default_factory=list)
    """Columns to learn the vocabulary from (default: `column`). Streams with the same `learn` share one
    vocabulary."""
    vocabulary: int | None = Field(default=None, ge=1, le=1 << 24)
    """Size of the vocabulary, special tokens included. Words: the most frequent words are kept (default: all words).
    Subwords: number of learned tokens (default: 10,000). Characters, bytes and `tokenizer`: the vocabulary is padded to
    this size (default: no padding; multiples of 64 are fast on a GPU)."""
    minimum: int = Field(default=1, ge=1)
    """Minimum number of occurrences of a word in the training texts (default: 1). Rarer words are unknown. For bpe and
    wordpiece, rarer pairs are not merged; the minimum is then at least 2."""
    begin: bool = False
    """Add the begin token before each text (default: false)."""
    end: bool = False
    """Add the end token after each text (default: false)."""
    lines: bool = False
    """Replace line breaks by the end token, as in WikiText; for words only (default: false)."""
    join: bool = False
    """Concatenate all texts and cut windows across them, as GPT-2 does; `end` separates the texts (default: false).
    With false, a window has tokens of a single text, so no token attends to another text."""
    lower: bool = False
    """Convert text to lower case (default: false)."""
    unicode_form: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normal form (default: none). Some characters can be written in two ways; a normal form has only one
    way."""
    tokenizer: str = ""
    """Path of a Hugging Face tokenizer.json to use instead of learning a vocabulary (default: none). It replaces
    `unit`, `lower` and `unicode_form`."""
    special: dict[str, str] = Field(default_factory=dict)
    """Names of special tokens by role: padding, unknown, begin, end, mask, separator (default: <pad>, <unk>, ...)."""
    context: int = Field(default=256, ge=1)
    """Maximum number of tokens of a window, the context length of the model (default: 256)."""
    step: int | None = Field(default=None, ge=1)
    """Stride of the training windows in tokens (default: 1, or the context length for large texts)."""
    tie: bool = True
    """Tie the weights of the last layer to the embedding (default: true)."""
    bias: bool = False
    """Add a bias to the last layer, as in BERT (default: false)."""
    scale: bool = False
    """Multiply the embedding by sqrt(D), as in arXiv 1706.03762 (default: false)."""

    @property
    def source_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.column,) if isinstance(self.column, str) else tuple(self.column)

    # The vocabulary

    def fit(self, tables: Iterable[Table]) -> None:
        if self.tokenizer:
            self._read()
        elif self.unit in SUBWORD_UNITS:
            from .subwords import learn_tokenizer

            sound = ([self._normalise_text(text) for text in texts] for texts in self._learned_from(tables))
            size = self.vocabulary or DEFAULT_VOCABULARY
            self.state["tokenizer"] = learn_tokenizer(
                self.unit, sound, size, self.minimum, self._names, self.lower, self.unicode_form
            )
        elif self.unit == "words":
            special = {name for _, name in self._names}
            words = (  # in texts already split into words, a word may contain a space («1 000»)
                self._normalise_text(text).split()
                if isinstance(text, str)
                else [self._normalise_text(word) for word in text]
                for texts in self._learned_from(tables, split=True)
                for text in texts
            )
            self.state["words"] = "\n".join(vocabulary.common_words(words, self.vocabulary, self.minimum, special))
        elif self.unit == "characters":
            texts = (self._normalise_text(text) for some in self._learned_from(tables) for text in some)
            self.state["characters"] = vocabulary.alphabet(texts)

    def _learned_from(self, tables: Iterable[Table], split: bool = False) -> Iterator[list[Any]]:
        """Texts of each column for learning the vocabulary.

        split   keep texts that are lists of words; otherwise join the words by spaces
        """
        for table in tables:
            for name in self.learn or self.source_columns:
                texts, words = text_column(table, name)
                yield [" ".join(text) for text in texts] if words and not split else texts

    def _read(self) -> None:
        from .subwords import read_tokenizer_text

        if self.lower or self.unicode_form != "none":
            key = "tokens.lower" if self.lower else "tokens.unicode_form"
            why = "because a tokenizer.json has its own normalisation"
            raise UserError(f"{key} cannot be combined with tokens.tokenizer, {why}", key=key, file=self.tokenizer)
        self.state["tokenizer"] = read_tokenizer_text(self.tokenizer)
        if not self.writable.any():
            message = f"the vocabulary of {self.tokenizer} has only special tokens"
            raise UserError(message, key="tokens.tokenizer", file=self.tokenizer)

    def absolute_paths(self) -> Self:
        if not self.tokenizer:
            return self
        return self.model_copy(update={"tokenizer": str(Path(self.tokenizer).expanduser().resolve())})

    def same_vocabulary(self, other: Tokens) -> bool:
        return isinstance(other, Text) and self._vocabulary_rules == other._vocabulary_rules

    @property
    def _vocabulary_rules(self) -> tuple[Any, ...]:
        columns = tuple(sorted(set(self.learn or self.source_columns)))
        rules = (self.lower, self.unicode_form, self._names, self.vocabulary, self.minimum)
        own = () if self.tokenizer or self.unit == "bytes" else columns
        return (self.unit, self.tokenizer, own, self._framed, *rules)

    @property
    def _framed(self) -> bool:
        """Whether the vocabulary includes begin, end and separator tokens."""
        letters = self.unit in ("characters", "bytes") and not self.tokenizer
        return not letters or bool(self.begin or self.end or self.learn or len(self.source_columns) > 1)

    @property
    def _names(self) -> TokenNames:
        for role in self.special:
            one_of("a role in tokens.special", role, SPECIAL_TOKENS, key="tokens.special")
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
            raise UserError("the tokens have no vocabulary yet", hint="Call fit with training texts, or load a run.")
        return str(self.state[what])

    @property
    def size(self) -> int:
        """Size of the vocabulary, including special tokens and padding."""
        least = self.coder.size
        if self.vocabulary is None or (not self.tokenizer and self.unit not in ("characters", "bytes")):
            return least
        if self.vocabulary < least:
            message = f"tokens.vocabulary must be at least {least}, the number of tokens found, not {self.vocabulary}"
            raise UserError(message, key="tokens.vocabulary")
        return self.vocabulary

    @property
    def specials(self) -> dict[str, int]:
        return dict(self.coder.specials)

    @property
    def end_id(self) -> int | None:
        """Id of the end token of training texts, or None.

        Every tokenizer.json from another program is assumed to add its end token.
        """
        return self.specials.get("end") if self.end or self.tokenizer else None

    @property
    def letters(self) -> Literal["characters", "bytes", ""]:
        """Unit of the tokens: "characters" or "bytes"; "" for words and subwords."""
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
            message = "tokens.lines cannot be exported: a tokenizer.json has no tokens for line ends"
            raise UserError(message, key="tokens.lines")
        frame = {role: self.special_id(role) for role in ("begin", "end") if getattr(self, role)}
        return {TOKENIZER_FILE: export_tokenizer(self.coder, frame, self.lower, self.unicode_form)}

    def nearest_words(self, word: str) -> list[str]:
        known = self._learned("words").split("\n") if self.unit == "words" and not self.tokenizer else []
        return difflib.get_close_matches(word, known)

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

    def _normalise_text(self, text: str) -> str:
        """Normalise a text by the keys `unicode_form` and `lower`.

        For subwords, only lone surrogates are replaced, because the tokenizer normalises the text itself.
        """
        if self.tokenizer or self.unit in SUBWORD_UNITS:
            return vocabulary.clean_text(text)
        return vocabulary.clean_text(text, self.unicode_form, self.lower)

    def encode(self, text: str) -> Array:
        """Ids of a text, without begin and end token; unseen parts are unknown tokens."""
        return self.coder.encode([self._normalise_text(text)])[0][0]

    def decode(self, ids: Any) -> str:
        """Convert ids to text; special tokens except the unknown token are dropped."""
        return self.coder.decode(np.asarray(ids, np.int64).reshape(-1))

    def tokenize(self, table: Table) -> Stream:
        """Make tokens of texts.

        ids    token ids
        word   index of the word of each token, if texts are lists of words
        part   index of the text column of each token
        """
        texts = [self._encode_column(*text_column(table, name)) for name in self.source_columns]

        def marker(role: str) -> list[Encoded]:
            return [(np.array([self.special_id(role)], np.int32), None)] * len(texts[0])

        runs = [(marker("begin"), 0)] if self.begin else []
        for number, found in enumerate(texts):
            runs += [(marker("separator"), number - 1)] if number else []
            runs.append((found, number))
        runs += [(marker("end"), len(texts) - 1)] if self.end else []
        encoded = [one for row in zip(*(found for found, _ in runs)) for one in row]  # ordered by row, then by run
        lengths = np.array([len(ids) for ids, _ in encoded], np.int64)
        columns = {"ids": _flatten([ids for ids, _ in encoded])}
        if self.coder.words:  # word indices continue from run to run
            words = [np.full(len(ids), -1, np.int32) if word is None else word for ids, word in encoded]
            counts = np.array([word.max(initial=-1) + 1 for word in words], np.int32).reshape(-1, len(runs))
            before, word = (counts.cumsum(1) - counts).ravel().repeat(lengths), _flatten(words)
            columns["word"] = np.where(word < 0, -1, word + before).astype(np.int32)
        if len(texts) > 1:
            columns["part"] = np.tile(np.array([part for _, part in runs], np.int32), len(texts[0])).repeat(lengths)
        return Stream(columns, lengths.reshape(-1, len(runs)).sum(1))

    def _encode_column(self, texts: list[Any], split: bool) -> list[Encoded]:
        if split:
            return self.coder.encode_words([[self._normalise_text(word) for word in words] for words in texts])
        return self.coder.encode([self._normalise_text(text) for text in texts])

    def mask_out(self, stream: Stream, tokens: Array) -> dict[str, Array]:
        return {"ids": np.where(tokens, self.mask, stream.columns["ids"]).astype(np.int32)}

    def random_replacement(self, stream: Stream, tokens: Array, rng: SampleRandom) -> dict[str, Array]:
        ids = np.flatnonzero(self.coder.writable).astype(np.int32)
        random = ids[rng.integers("noise", len(ids), stream.lengths)]
        return {"ids": np.where(tokens, random, stream.columns["ids"])}

    def maskable(self, stream: Stream) -> Array:
        """Mask of maskable tokens: text and unknown tokens, but no other special tokens."""
        may = self.writable
        if "unknown" in self.coder.specials:
            may[self.coder.specials["unknown"]] = True
        return may[stream.columns["ids"]]

    def change(self, stream: Stream, token: int, column: str, value: Any) -> Stream:
        """Replace a token by an id or by a text; the text must be a single token."""
        if isinstance(value, str):
            ids = self.encode(value)
            if len(ids) != 1:
                raise UserError(f"the replacement must be a single token, but {value!r} is {len(ids)} tokens")
            value = int(ids[0])
        if not 0 <= int(value) < self.size:
            raise UserError(f"the id of a token must be from 0 to {self.size - 1}, not {value}")
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
    """Table with the column `text`, and a sample for each text."""
    return Samples({"text": strings(texts)})


def _flatten(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def text_column(table: Table, name: str) -> tuple[list[Any], bool]:
    """Texts of a column, and whether each text is a list of words."""
    if name not in table:
        message = f"the data have no column `{name}`; their columns are {', '.join(table)}"
        raise UserError(message, hint=f"Add a file that has the column `{name}`.")
    column = table[name]
    if isinstance(column, Lists):
        words, stops = [as_text(word, name) for word in column.values], column.lengths.cumsum().tolist()
        return [words[stop - length : stop] for stop, length in zip(stops, column.lengths.tolist())], True
    if column.dtype.kind != "U" and any(isinstance(row, (list, tuple, np.ndarray)) for row in column):
        lists = [row if isinstance(row, (list, tuple, np.ndarray)) else [None] for row in column]
        return [[as_text(word, name) for word in words] for words in lists], True
    if column.ndim > 1:
        return [[as_text(word, name) for word in words] for words in column], True
    return [as_text(text, name) for text in column], False


def as_text(value: Any, column: str) -> str:
    """Text of a string or a number; error for any other value."""
    if isinstance(value, (bytes, str)):
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if isinstance(value, (bool, int, float, np.generic)):
        return str(value)
    message = f"the column `{column}` must hold texts or lists of words, but holds a {type(value).__name__}"
    raise UserError(message, hint="All samples must have the same form.")
