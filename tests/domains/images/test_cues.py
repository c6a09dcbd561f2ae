"""Which of two cues is followed."""

from types import SimpleNamespace

import numpy as np
import pytest

from sciformer.domains.images import cues
from sciformer.domains.images.cues import cue_bias
from sciformer.evaluation.evaluate import Evaluation
from sciformer.inspection.report.page import Page
from tests.errors import refuses


def test_answers_are_counted_where_cues_disagree():
    shape = ["a", "a", "a", "b", "b", "c"]
    texture = ["b", "b", "a", "a", "c", "a"]
    found = cue_bias(["a", "b", "a", "b", "a", "c"], shape, texture)
    assert (found.first, found.second, found.neither) == (3, 1, 1)
    assert found.classes == {"a": (1, 1), "b": (1, 0), "c": (1, 0)}
    assert found.value == 0.75
    assert found.error == pytest.approx(np.sqrt(0.75 * 0.25 / 4))


def test_nothing_to_count():
    found = cue_bias([1, 2], [1, 2], [1, 2])
    assert (found.first, found.second, found.neither, found.classes) == (0, 0, 0, {})
    assert np.isnan([found.value, found.error]).all()
    with refuses((2,), (1,)):
        cue_bias([1, 2], [1, 2], [1])


def test_the_section_of_the_report():
    found = SimpleNamespace(objective=SimpleNamespace(label="label", classes=["0", "1"]), numbers={})
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    samples = {"label": np.array([0, 1, 1]), "texture": np.array([1, 0, 1])}
    page = Page("x")
    found.evaluated = {"valid": Evaluation({}, {"probabilities": p}, {"label": samples["label"]})}
    cues.cue_section(page, found)
    assert "texture" not in page.html()
    found.evaluated = {"test": Evaluation({}, {"probabilities": p}, samples)}
    cues.cue_section(page, found)
    assert "0.500 ± 0.354" in page.html()
    assert found.numbers["cues"]["test"]["bias"] == 0.5
