"""From tokens to text as they come: whole characters, and nothing of what a text must stop before."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tokens.protocols import Textual

REPLACEMENT_CHARACTER = "\ufffd"


class Line:
    """One text in the making: what of it may be shown, and whether it is over."""

    def __init__(self, tokens: Textual, before: list[int], stops: list[str], end: int | None) -> None:
        self.letters = ByteLetters() if tokens.letters == "bytes" else Letters(tokens, before)
        self.stops, self.end = stops, end
        self.held, self.over = "", False

    def add(self, tokens: list[int]) -> str:
        """What is certain with some tokens more."""
        ended = self.end in tokens
        self.held += self.letters.add(tokens[: tokens.index(self.end)] if ended else tokens)  # type: ignore[arg-type]
        found = [self.held.index(stop) for stop in self.stops if stop in self.held]
        ready = (
            min(found)
            if found
            else len(self.held) - max((_stop_overlap(self.held, stop) for stop in self.stops), default=0)
        )
        self.over = bool(found) or ended
        piece, self.held = self.held[:ready], self.held[ready:]
        return piece + self.close() if ended and not found else piece

    def pieces(self, blocks: Iterable[list[int]]) -> Iterator[str]:
        """The pieces of a whole text that comes in blocks of tokens."""
        for tokens in blocks:
            if piece := self.add(tokens):
                yield piece
            if self.over:
                return
        if piece := self.close():
            yield piece

    def close(self) -> str:
        """What was held back, where the text ends without a stop."""
        return self.held + self.letters.rest()


class Letters:
    """From tokens to text, so that the pieces together are the text of all tokens.

    A token may stand for half a character, or for a blank and a word; so it is read together with those before it.
    """

    def __init__(self, tokens: Textual, before: list[int]) -> None:
        self.tokens, self.ids = tokens, before[-8:]
        self.text = tokens.decode(self.ids)
        self.shown = len(self.text)

    def add(self, tokens: list[int]) -> str:
        """The text that these tokens complete."""
        if len(self.ids) > 64 and self.shown == len(self.text):  # to read everything again would take ever longer
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
    """The same of bytes: whole characters, and nothing of one that is never completed."""

    def __init__(self) -> None:
        self.reader = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, tokens: list[int]) -> str:
        """The text that these bytes complete."""
        return self.reader.decode(bytes(tokens))

    def rest(self) -> str:
        return ""


def _stop_overlap(text: str, stop: str) -> int:
    """How many letters at the end of a text may be the beginning of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
