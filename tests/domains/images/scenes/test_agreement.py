"""Judging pictures by their captions: each mistake is told from the others."""

import numpy as np
import pytest

from sciformer.domains.images.scenes.agreement import MISTAKES, centres, confusion, judge, shares, shares_of
from sciformer.domains.images.scenes.rendering import box_of, render_things
from sciformer.domains.images.scenes.things import Kind, Thing
from sciformer.domains.images.simulate.scenes import Scenes


def picture(*things):
    found = [Thing(kind, x, y, box_of(kind, x, y, 64)) for kind, x, y in things]
    return render_things(found, 64)


DISC, STAR, BLUE_DISC = Kind("disc", "red", "small"), Kind("star", "blue"), Kind("disc", "blue", "small")
CAPTION = "a small red disc left of a blue star"


@pytest.mark.parametrize(
    ("things", "mistake"),
    [
        ([(DISC, 15, 30), (STAR, 45, 30)], ""),
        ([(DISC, 45, 30), (STAR, 15, 30)], "wrong_relation"),
        ([(DISC, 15, 15), (STAR, 45, 45)], "wrong_relation"),  # near the diagonal no relation is clear
        ([(BLUE_DISC, 15, 30), (Kind("star", "red"), 45, 30)], "wrong_binding"),
        ([(Kind("disc", "red"), 15, 30), (Kind("star", "blue", "small"), 45, 30)], "wrong_binding"),
        ([(Kind("disc", "green", "small"), 15, 30), (STAR, 45, 30)], "wrong_attribute"),
        ([(Kind("ring", "red", "small"), 15, 30), (STAR, 45, 30)], "wrong_attribute"),
        ([(DISC, 15, 30)], "missing"),
        ([], "missing"),
        ([(DISC, 15, 30), (STAR, 45, 30), (STAR, 45, 50)], "extra"),
    ],
)
def test_each_mistake_is_told(things, mistake):
    found = judge(picture(*things), CAPTION)
    assert found.mistake == mistake
    assert found.right == (not mistake)
    assert len(found.things) == len(things)


def test_true_pictures_are_right():
    table = Scenes(chunk_size=64).make(64)
    found = shares(table["image"], [str(text) for text in table["caption"]])
    assert found == {"right": 1.0, **dict.fromkeys(MISTAKES, 0.0), "wrong_count": 0.0}
    shifted = shares(table["image"], [str(text) for text in np.roll(table["caption"], 1)])
    assert shifted["right"] < 0.1
    assert shifted["right"] + sum(shifted[name] for name in MISTAKES) == pytest.approx(1)
    assert shifted["wrong_count"] == shifted["missing"] + shifted["extra"] > 0
    assert shares_of([])["right"] == 0


def test_confusion_of_matched_things():
    judgements = [
        judge(picture((Kind("disc", "green", "small"), 15, 30), (STAR, 45, 30)), CAPTION),
        judge(picture((DISC, 15, 30)), CAPTION),  # another number of things: left out
    ]
    colours = confusion([CAPTION] * 2, judgements, "colour")
    assert colours.sum() == 2
    names = ["red", "green", "blue", "yellow", "orange", "purple", "cyan", "white"]
    assert colours[names.index("red"), names.index("green")] == colours[names.index("blue"), names.index("blue")] == 1
    assert np.trace(confusion([CAPTION] * 2, judgements, "shape")) == 2
    assert centres(judgements).tolist() == [[15, 30], [45, 30], [15, 30]]
