"""Streaming detokenization in complete characters, up to a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tokens.protocols import Textual

REPLACEMENT_CHARACTER = "\ufffd"


class Line:
    """Detokenizer of a single text, with its stop strings and its end token."""

    def __init__(self, tokens: Textual, before: list[int], stops: list[str], end: int | None) -> None:
        self.letters = ByteLetters() if tokens.letters == "bytes" else Letters(tokens, before)
        self.stops, self.end = stops, end
        self.held, self.over = "", False

    def add(self, tokens: list[int]) -> str:
        """Add tokens; return the new text, without an incomplete last character.

        The start of a possible stop string is held back, too.
        """
        ended = self.end in tokens
        self.held += self.letters.add(tokens[: tokens.index(self.end)] if ended else tokens)  # type: ignore[arg-type]
        found = [self.held.index(stop) for stop in self.stops if stop in self.held]
        overlap = max((_stop_overlap(self.held, stop) for stop in self.stops), default=0)
        ready = min(found, default=len(self.held) - overlap)
        self.over = bool(found) or ended
        piece, self.held = self.held[:ready], self.held[ready:]
        return piece + self.close() if ended and not found else piece

    def pieces(self, blocks: Iterable[list[int]]) -> Iterator[str]:
        """Yield pieces of text for blocks of tokens, up to the end of the text."""
        for tokens in blocks:
            if piece := self.add(tokens):
                yield piece
            if self.over:
                return
        if piece := self.close():
            yield piece

    def close(self) -> str:
        """End the text; return the characters held back as a possible stop string."""
        return self.held + self.letters.rest()


class Letters:
    """Incremental decoder of tokens; the pieces concatenate to the text of all tokens.

    A token may be half a character, or a space and a word, so it is decoded together with earlier tokens.
    """

    def __init__(self, tokens: Textual, before: list[int]) -> None:
        self.tokens, self.ids = tokens, before[-8:]
        self.text = tokens.decode(self.ids)
        self.shown = len(self.text)

    def add(self, tokens: list[int]) -> str:
        if len(self.ids) > 64 and self.shown == len(self.text):  # keeps the total time linear in the length
            self.ids = self.ids[-8:]
            self.shown = len(self.tokens.decode(self.ids))
        self.ids += tokens
        self.text = self.tokens.decode(self.ids)
        ready = len(self.text) - self.text.endswith(REPLACEMENT_CHARACTER)
        piece = self.text[self.shown : ready]
        self.shown = max(self.shown, ready)
        return piece

    def rest(self) -> str:
        return str(self.text[self.shown :])


class ByteLetters:
    """Incremental decoder of UTF-8 bytes; an incomplete last character is dropped."""

    def __init__(self) -> None:
        self.reader = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, tokens: list[int]) -> str:
        return self.reader.decode(bytes(tokens))

    def rest(self) -> str:
        return ""


def _stop_overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that is a prefix of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
