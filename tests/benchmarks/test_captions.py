"""The benchmark of captions: boxes on patches, words of attributes, right attributes, and rows of results."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

import captions
import captions_tasks as tasks
from sciformer.domains.images.scenes.captions import parse_caption
from tests.benchmarks.test_results import KEYS

LOG = """== coca-0
step 450: validation loss 1.4  recall_1 0.7  (best so far)
step 1,900: validation loss 0.9  recall_1 0.8  (best so far)
step 2,350: validation loss 1.0  recall_1 0.8
== coca-1
step 450: validation loss 1.4  recall_1 0.7  (best so far)
== labels-0
step 450: validation loss 1.4  accuracy 0.7  (best so far)
"""
ABOUT = {"asked_steps": 4500, "batch": 256, "learning_rate": 1e-3, "scenes": 96000, "parameters": 7}
ABOUT |= {"complete": False, "train_s": 400.0, "origin": {"hardware": "h", "versions": {}, "commit": "c"}}
SCORES = {"colour": 1.0, "shape": 0.5, "size": 0.5, "count": 1.0}


def result(model, seed, steps, **parts):
    return {"model": model, "seed": seed, "steps": steps, **ABOUT, **parts}


@pytest.fixture
def out(tmp_path):
    found = [
        result(
            "coca", 0, 2400, captions={"exact": 0.9, "written": ["a"], **SCORES}, zero_shot={"shape": 1, "colour": 0}
        ),
        result("coca", 1, 500, captions={"exact": 0.8, "written": ["b"], **SCORES}),
        result("labels", 0, 500, probe={"mean": 0.5, "head": 1.0}),
    ]
    (tmp_path / "captions.json").write_text(json.dumps(found))
    (tmp_path / "captions-log.txt").write_text(LOG)
    return tmp_path


def test_the_cover_of_patches_by_boxes():
    cover = tasks.box_cover([(2, 0, 4, 2), (3, 1, 1, 1)], rows=2, columns=3, side=2)  # left, top, width, height
    np.testing.assert_array_equal(cover, [0, 1, 1, 0, 0, 0])
    part = tasks.box_cover([(1, 1, 2, 2)], rows=2, columns=2, side=2)
    np.testing.assert_array_equal(part, [0.25] * 4)
    assert part.mean() == 4 / 16  # the area of the box, as a share


def test_words_of_colour_and_shape_belong_to_their_thing():
    caption = "two small red discs left of a blue star"
    words = caption.split()
    found = [(words[place], word, kind.words) for place, word, kind in tasks.attribute_words(caption)]
    assert found == [
        ("red", "colour", "small red disc"),
        ("discs", "shape", "small red disc"),
        ("blue", "colour", "blue star"),
        ("star", "shape", "blue star"),
    ]


def test_overlap_counts_values_of_both():
    assert tasks.overlap(Counter("aab"), Counter("abc")) == pytest.approx(2 / 3)
    assert tasks.overlap(Counter("a"), Counter("aaaa")) == 0.25  # too many are wrong too
    assert tasks.overlap(Counter("ab"), Counter()) == 0
    true, said = parse_caption("two red discs above a blue star"), parse_caption("a red disc above a blue star")
    assert tasks.overlap(tasks.ATTRIBUTES["colour"](true), tasks.ATTRIBUTES["colour"](said)) == pytest.approx(2 / 3)
    assert tasks.overlap(tasks.ATTRIBUTES["thing"](true), tasks.ATTRIBUTES["thing"](None)) == 0
    assert [tasks.number(one) for one in (true, said, None)] == [3, 2, 0]


def test_relations_are_compared_between_the_same_things():
    true = parse_caption("a red disc above a blue star and left of a green bar")
    said = parse_caption("a red disc above a blue star and right of a green bar")
    assert list(tasks.relations(true, true)) == [True, True]
    assert list(tasks.relations(true, said)) == [True, False]
    assert list(tasks.relations(true, parse_caption("a red disc above a green star"))) == []
    assert list(tasks.relations(true, None)) == []
    assert tasks.parsed("red a disc") is None


def test_linear_probes_find_what_is_linear():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    label, twice = (x[:, 0] > 0).long().numpy(), (x[:, :2] > 0).long().numpy()
    noise = np.random.default_rng(0).integers(0, 2, 200)
    assert tasks.linear(x[:150], x[150:], label[:150], label[150:]) > 0.9
    assert tasks.linear(x[:150], x[150:], twice[:150], twice[150:]) > 0.9
    assert tasks.linear(x[:150], x[150:], noise[:150], noise[150:]) < 0.8


def test_steps_of_the_kept_weights_are_in_the_log(out):
    assert captions.best_steps(out / "captions-log.txt") == {"coca-0": 1900, "coca-1": 450, "labels-0": 450}


def test_rows_of_a_folder(out):
    captions.take(out, out / "rows.json")
    found = {row["id"]: row for row in json.loads((out / "rows.json").read_text())}
    values = {"captions.coca.exact": 0.85, "captions.coca.attributes": 0.75, "captions.coca.zero_shot": 0.5}
    assert {name: row["value"] for name, row in found.items()} == values | {"captions.labels.probe": 0.5}
    assert all(row.keys() >= KEYS for row in found.values())
    exact = found["captions.coca.exact"]
    assert (exact["bar"], exact["seeds"], exact["values"]) == (0.95, 2, [0.9, 0.8])
    assert exact["spread"] == pytest.approx(np.std([0.9, 0.8], ddof=1), abs=1e-4)
    assert (exact["steps"], exact["best_step"], exact["complete"]) == ([2400, 500], [1900, 450], [False, False])
    assert exact["more"] == {"exact": 0.85, **SCORES}
    assert found["captions.coca.zero_shot"]["spread"] is None  # of one seed
    assert "images/coca" in exact["depends"]
