"""Scenes: combinations of the parts, columns, and captions of every kind."""

import numpy as np
import pytest

from sciformer.data.source import pieces
from sciformer.domains.images.scenes.captions import parse_caption
from sciformer.domains.images.scenes.placement import held_out
from sciformer.domains.images.scenes.things import COLOURS, RELATIONS, SHAPES, parse_things
from sciformer.domains.images.simulate.scenes import Scenes


def pairs(table):
    """Combinations of shape and colour in each scene."""
    return [{(kind.shape, kind.colour) for kind, _ in parse_things(text)} for text in table["things"]]


APART = {(SHAPES[s], [*COLOURS][c]) for s, c in np.argwhere(held_out(2)).tolist()}


def test_held_out_combinations_are_in_the_part_unseen_alone():
    opened = Scenes(number=600, valid=100, test=100).open()
    assert list(opened.sources) == ["train", "valid", "test", "unseen"]
    tables = {part: next(pieces(source)) for part, source in opened.sources.items()}
    found = {part: pairs(table) for part, table in tables.items()}
    assert len(set.union(*found["train"])) == 48
    for part in ("train", "valid", "test"):
        assert not set.union(*found[part]) & APART
        assert not tables[part]["unseen"].any()
    assert all(some & APART for some in found["unseen"])
    assert set.union(*found["unseen"]) - APART
    assert tables["unseen"]["unseen"].min() == 1
    assert len(APART) == 16


@pytest.mark.parametrize(("combinations", "low", "high"), [("seen", 0, 0), ("unseen", 1, 1), ("all", 0.3, 0.65)])
def test_written_files_have_the_asked_combinations(combinations, low, high):
    table = Scenes(combinations=combinations).make(300)
    assert low <= np.mean([bool(some & APART) for some in pairs(table)]) <= high
    assert (table["unseen"] > 0).tolist() == [bool(some & APART) for some in pairs(table)]


def test_without_held_out_combinations_there_is_no_part_unseen():
    section = Scenes(held_out=0, number=400)
    assert list(section.open().sources) == ["train", "valid", "test"]
    assert len(set.union(*pairs(section.make(400, part="train")))) == 64


def test_captions_name_all_things_with_clear_relations():
    table = Scenes().make(500)
    relations, numbers = set(), set()
    for text, caption, count in zip(table["things"], table["caption"], table["count"]):
        found = parse_caption(caption)
        assert found.words == caption
        assert sum(group.number for group in found.groups) == count == len(parse_things(text))
        relations |= {*found.relations}
        numbers |= {group.number for group in found.groups}
    assert relations == set(RELATIONS)
    assert numbers == {1, 2, 3, 4}
    assert np.bincount(table["count"], minlength=5).tolist()[0] == 0
    assert np.bincount(table["count"]).min(initial=500, where=np.arange(5) > 0) > 90
    few = Scenes(things=(2, 2)).make(50)
    assert set(few["count"].tolist()) == {2}


def test_no_picture_of_training_is_in_a_test_part():
    section = Scenes()
    found = [set(map(bytes, section.make(300, part=part)["image"])) for part in ("train", "valid", "test", "unseen")]
    assert len(set.union(*found)) == sum(map(len, found)) == 1200


@pytest.mark.parametrize(("attribute", "words"), [("colour", {*COLOURS}), ("shape", {*SHAPES})])
def test_a_question_with_its_answer_is_the_caption(attribute, words):
    table = Scenes(hide=attribute, things=(2, 3)).make(300)
    assert {*table["answer"]} == words
    for question, answer, caption in zip(table["question"], table["answer"], table["caption"]):
        assert question.split().count("?") == 1
        place = question.split().index("?")
        whole, found = caption.split(), question.split()
        assert whole[place].startswith(answer)  # shapes may be plurals
        assert whole[: place - 1] == found[: place - 1]
        assert whole[place + 1 :] == found[place + 1 :]
        assert found[place - 1] != "an"  # it would tell that the colour is orange
    plain = Scenes(things=(2, 3)).make(300)
    assert "question" not in plain
    np.testing.assert_array_equal(plain["image"][:64], table["image"][:64])
