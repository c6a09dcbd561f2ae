"""Scenes of one to four coloured shapes with captions.

    table = Scenes().make(10_000)                     # columns image (n, 64, 64, 3) of 8 bits, caption, things ...
    table = Scenes().make(1000, part="unseen")        # scenes with combinations that are not in the training part

    a small red disc left of a blue star

Things have one of eight shapes, eight colours and three sizes. They do not overlap, and each relation of the caption is
clear: the centres are farther apart along one axis than along the other, by `MIN_LEAN` of the side of the picture or
more. `scenes.captions` is the grammar, `scenes.reading` reads things and caption back from a picture.

With `hide: colour`, a caption without one of its colours is a question, and the colour is its answer:

    a small red disc left of a ? star                 answer: blue

Some combinations of shape and colour appear in no picture of train, valid and test, but in each picture of the part
`unseen`. This part tests whether a model can combine a shape and a colour that it has never seen together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ....data.columns import Array, Table
from ....errors import UserError
from ..scenes.captions import Caption, describe
from ..scenes.placement import Kinds, draw_kinds, draw_places, held_out
from ..scenes.rendering import box_of, render
from ..scenes.things import COLOURS, MAX_THINGS, SHAPES, SIZES, Kind, Thing, things_text
from .base import SimulatedImages

COLOUR_NAMES = tuple(COLOURS)


class Scenes(SimulatedImages):
    """Pictures of coloured shapes with captions, thousands per second on one core.

    Columns: `image`, `caption`, `things` (kind and box of each thing, as text), `count` (number of things), `unseen`
    (number of things with a held-out combination); with `hide` also `question` and `answer`. See
    `sciformer.domains.images.simulate.scenes` for details.
    """

    noun: ClassVar[str] = "scenes"
    rows_per_chunk: ClassVar[int] = 256
    further_parts: ClassVar[tuple[str, ...]] = ("unseen",)

    size: int = Field(default=64, ge=64, le=128)
    """Image size in pixels, from 64 to 128 (default: 64)."""
    things: tuple[int, int] = (1, MAX_THINGS)
    """Smallest and largest number of things in a scene, at most 4 (default: 1 and 4)."""
    held_out: int = Field(default=2, ge=0, le=6)
    """Held-out colours for each shape, from 0 to 6 of 8. With `combinations: seen`, only the part `unseen` has these
    combinations of shape and colour (default: 2)."""
    combinations: Literal["seen", "unseen", "all"] = "seen"
    """Combinations of shape and colour in train, valid and written files (default: seen). `seen`: all combinations
    except the held-out combinations. `unseen`: each scene has a held-out combination. `all`: all combinations equally
    often, for comparison."""
    hide: Literal["none", "shape", "colour"] = "none"
    """Attribute that is replaced by `?` in one group of each caption (default: none). The column `question` has the
    caption with `?`, the column `answer` has the replaced word."""

    def check(self) -> None:
        super().check()
        low, high = self.things
        if not 1 <= low <= high <= MAX_THINGS:
            message = f"data.things must be two numbers from 1 to {MAX_THINGS}, the smaller first, not {low} and {high}"
            raise UserError(message, key="data.things")
        if self.combinations == "unseen" and not self.held_out:
            message = "data.combinations unseen needs held-out combinations, but data.held_out is 0"
            raise UserError(message, key="data.combinations")

    def bytes_per_pixel(self) -> int:
        return 3

    def counts(self) -> dict[str, int]:
        """Number of scenes in each part; the part `unseen` is as large as test."""
        found = super().counts()
        return {**found, "unseen": found["test"]} if self.held_out else found

    def make_chunk(self, rng: np.random.Generator, label: Array, part: str) -> Table:
        drawn = self.draw_kinds(rng, {"test": "seen", "unseen": "unseen"}.get(part, self.combinations))
        x, y = draw_places(rng, drawn, self.size)
        scenes = [
            _things(kinds, across, down, self.size)
            for kinds, across, down in zip(np.stack(drawn, -1).tolist(), x.tolist(), y.tolist())
        ]
        captions = [describe(things, self.size) for things in scenes]
        unseen = np.where(drawn.shape >= 0, held_out(self.held_out)[drawn.shape, drawn.colour], False)
        table: Table = {
            "image": render(*drawn, x, y, self.size),
            "caption": np.array([caption.words for caption in captions if caption is not None]),
            "things": np.array([things_text(things) for things in scenes]),
            "count": (drawn.shape >= 0).sum(1).astype(np.int8),
            "unseen": unseen.sum(1).astype(np.int8),
        }
        return table if self.hide == "none" else {**table, **ask(captions, self.hide, rng)}

    def draw_kinds(self, rng: np.random.Generator, combinations: str) -> Kinds:
        """Draw the kinds of the things in a chunk of scenes."""
        counts = rng.integers(self.things[0], self.things[1] + 1, self.chunk_rows())
        apart = held_out(self.held_out).ravel()
        pairs = np.flatnonzero(~apart) if combinations == "seen" else np.arange(len(apart))
        return draw_kinds(rng, counts, pairs, np.flatnonzero(apart) if combinations == "unseen" else None)


def ask(captions: Sequence[Caption | None], attribute: str, rng: np.random.Generator) -> Table:
    """Columns `question` and `answer` of captions.

    A question is a caption with `?` for the attribute of a random group; the answer is the hidden word.
    """
    questions, answers = [], []
    for caption, number in zip(captions, rng.random(len(captions)).tolist()):
        assert caption is not None  # things of simulated scenes have clear relations
        group = int(number * len(caption.groups))
        questions.append(caption.without(group, attribute))
        answers.append(getattr(caption.groups[group].kind, attribute))
    return {"question": np.array(questions), "answer": np.array(answers)}


def _things(kinds: list[list[int]], x: list[int], y: list[int], side: int) -> list[Thing]:
    found = []
    for (shape, colour, size), across, down in zip(kinds, x, y):
        if shape >= 0:
            kind = Kind(SHAPES[shape], COLOUR_NAMES[colour], SIZES[size])
            found.append(Thing(kind, across, down, box_of(kind, across, down, side)))
    return found
