"""Vocabularies of characters, bytes and words, and their base class."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ...data.columns import Array
from ...errors import UserError

Encoded = tuple[Array, Array | None]
"""Ids (N,) of a text, and the word index (N,) of each token, or None for units without words."""
TokenNames = tuple[tuple[str, str], ...]
"""(role, name) of the special tokens, in the order of their ids."""

UNKNOWN_CHARACTER, MASK_CHARACTER = "\ufffd", "\ufffc"  # replacement and object replacement character
SPECIAL_TOKENS = {
    "padding": "<pad>",
    "unknown": "<unk>",
    "begin": "<s>",
    "end": "</s>",
    "mask": "<mask>",
    "separator": "<sep>",
}
VISIBLE_BLANKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}


class Coder:
    """Vocabulary: conversion of text to ids from 0 to `size` - 1, and back.

    specials  ids of the special tokens by role
    """

    size: int
    specials: dict[str, int]
    words: bool = True  # whether tokens belong to words

    @cached_property
    def writable(self) -> Array:
        """Mask (size,) of the ids of text; False for special tokens."""
        found = np.ones(self.size, bool)
        found[list(self.specials.values())] = False
        return found

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode texts, without adding begin and end tokens."""
        raise NotImplementedError

    def encode_words(self, texts: Sequence[Sequence[str]]) -> list[Encoded]:
        """Encode texts given as lists of words."""
        raise NotImplementedError

    def decode(self, ids: Array) -> str:
        """Convert ids to text; special tokens except the unknown token are dropped."""
        raise NotImplementedError

    def display_tokens(self, ids: Array, word: Array | None) -> list[str]:
        """Readable form of each token, for labels and plots."""
        raise NotImplementedError

    def tokenizer_parts(self) -> dict[str, Any]:
        """Sections `model`, `pre_tokenizer` and `decoder` of the file tokenizer.json."""
        raise NotImplementedError


class CharacterCoder(Coder):
    """Vocabulary of characters or bytes, with special tokens at the end.

    The special tokens are unknown and mask; if `framed`, also begin, end and separator.
    """

    words = False

    def __init__(self, characters: str | None, framed: bool, names: TokenNames) -> None:
        """Make a vocabulary.

        characters  sorted characters of the vocabulary; None for the 256 bytes of UTF-8
        framed      whether to add the tokens begin, end and separator
        names       (role, name) of the special tokens
        """
        self.characters, self.names = characters, dict(names)
        self.alphabet_size = 256 if characters is None else len(characters)
        roles = ["unknown", "mask", *(["begin", "end", "separator"] if framed else [])]
        self.specials = {role: self.alphabet_size + i for i, role in enumerate(roles)}
        self.size = self.alphabet_size + len(roles)
        self.points = np.array([ord(character) for character in characters or ""], np.uint32)

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        return [(self._ids(text), None) for text in texts]

    def encode_words(self, texts: Sequence[Sequence[str]]) -> list[Encoded]:
        return self.encode([" ".join(words) for words in texts])

    def _ids(self, text: str) -> Array:
        if self.characters is None:
            return np.frombuffer(text.encode(), np.uint8).astype(np.int32)
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        place = np.searchsorted(self.points, points)
        seen = np.append(self.points, np.uint32(0xFFFFFFFF))[place] == points  # not a code point
        return np.where(seen, place, self.alphabet_size).astype(np.int32)

    def decode(self, ids: Array) -> str:
        """Convert ids to text, with U+FFFD for unknown and U+FFFC for masked characters."""
        if self.characters is None:
            return bytes(ids[ids < 256].astype(np.uint8)).decode(errors="replace")
        extra = {self.alphabet_size: UNKNOWN_CHARACTER, self.alphabet_size + 1: MASK_CHARACTER}
        return "".join(self.characters[i] if i < self.alphabet_size else extra.get(int(i), "") for i in ids)

    def display_tokens(self, ids: Array, word: Array | None) -> list[str]:
        names = {number: self.names[role] for role, number in self.specials.items() if role not in ("unknown", "mask")}
        texts = [names.get(int(i)) or self.decode(ids[n : n + 1]) for n, i in enumerate(ids)]
        return [VISIBLE_BLANKS.get(text, text) for text in texts]

    def tokenizer_parts(self) -> dict[str, Any]:
        """Sections of the file tokenizer.json: a BPE model without merges, and a decoder."""
        letters = self.characters if self.characters is not None else byte_letters()
        vocabulary = {letter: number for number, letter in enumerate(letters)}
        vocabulary |= {self.names[role]: number for role, number in self.specials.items()}
        model = {"type": "BPE", "vocab": vocabulary, "merges": []}
        if self.characters is None:
            return {"model": model, "pre_tokenizer": _BYTE_LEVEL, "decoder": _BYTE_LEVEL}
        return {"model": model | {"unk_token": self.names["unknown"]}, "decoder": {"type": "Fuse"}}


class WordCoder(Coder):
    """Vocabulary of words, with special tokens at the beginning."""

    def __init__(self, listed: str, names: TokenNames, lines: bool) -> None:
        """Make a vocabulary.

        listed  words in the order of their ids, one per line
        names   (role, name) of the special tokens
        lines   whether a line break becomes an end token
        """
        words = listed.split("\n") if listed else []
        self.names = list(dict.fromkeys(name for _, name in names))  # two roles may share a name
        self.specials = {role: self.names.index(name) for role, name in names}
        self.texts = [*self.names, *words]
        self.numbers = {word: len(self.names) + i for i, word in enumerate(words)}
        self.size, self.lines = len(self.texts), lines
        if lines:
            self.numbers["\n"] = self.specials["end"]

    @cached_property
    def writable(self) -> Array:
        found = super().writable
        found[self.specials["end"]] = self.lines
        return found

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        if not self.lines:
            return self.encode_words([text.split() for text in texts])
        lines = ([(*line.split(), "\n") for line in text.split("\n")] for text in texts)
        return self.encode_words([[word for line in found for word in line][:-1] for found in lines])

    def encode_words(self, texts: Sequence[Sequence[str]]) -> list[Encoded]:
        unknown, find = self.specials["unknown"], self.numbers.get
        ids = (np.array([find(word, unknown) for word in words], np.int32) for words in texts)
        return [(found, np.arange(len(found), dtype=np.int32)) for found in ids]

    def decode(self, ids: Array) -> str:
        unknown, first, end = self.specials["unknown"], len(self.names), self.specials["end"] if self.lines else -1
        shown = ("\n" if i == end else self.texts[i] for i in ids if first <= i < self.size or i in (unknown, end))
        return " ".join(shown).replace(" \n ", "\n").replace(" \n", "\n").replace("\n ", "\n")

    def display_tokens(self, ids: Array, word: Array | None) -> list[str]:
        return [self.texts[i] if i < self.size else "" for i in ids]

    def tokenizer_parts(self) -> dict[str, Any]:
        numbers = {text: number for number, text in enumerate(self.texts)}
        model = {"type": "WordLevel", "vocab": numbers, "unk_token": self.names[self.specials["unknown"]]}
        return {"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}


character_coder, word_coder = lru_cache(maxsize=16)(CharacterCoder), lru_cache(maxsize=16)(WordCoder)
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def byte_letters() -> str:
    """Printable characters for the 256 bytes in byte-level vocabularies (GPT-2)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return "".join(chr(byte if byte in shown else next(other)) for byte in range(256))


def alphabet(texts: Iterable[str]) -> str:
    """Distinct characters of the texts, sorted by code point."""
    seen = {letter for text in texts for letter in set(text)} - {UNKNOWN_CHARACTER, MASK_CHARACTER}
    if not seen:
        raise UserError("the training data have no text to learn a vocabulary from")
    return "".join(sorted(seen))


def common_words(texts: Iterable[Sequence[str]], size: int | None, minimum: int, special: Collection[str]) -> list[str]:
    """Words of the texts by descending frequency; ties in alphabetical order.

    size     maximum size of the vocabulary, special tokens included (default: no limit)
    minimum  minimum frequency of a word
    special  names of the special tokens, excluded from the words
    """
    counts = Counter(word for words in texts for word in words)
    for word in [*special, *(word for word in counts if "\n" in word)]:  # words are stored one per line
        del counts[word]
    if not counts:
        raise UserError("the training data have no text to learn a vocabulary from")
    if size is not None and size <= len(special):
        message = f"tokens.vocabulary must be above {len(special)}, the number of special tokens, not {size}"
        raise UserError(message, key="tokens.vocabulary")
    kept = [word for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count >= minimum]
    if not kept:
        most = f"the most frequent word occurs {max(counts.values())} times"
        raise UserError(f"no word occurs {minimum} times or more (tokens.minimum); {most}", key="tokens.minimum")
    return kept if size is None else kept[: size - len(special)]


def clean_text(text: str, normal: str = "none", lower: bool = False) -> str:
    """Replace lone surrogates by U+FFFD; apply the Unicode normal form and lower case."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if normal != "none":
        text = unicodedata.normalize(normal.upper(), text)  # type: ignore[arg-type]
    return text.lower() if lower else text
