"""Tokens left out: which, how, and what a model does without them that is built to need one."""

import numpy as np
import pytest

from sciformer.data.batch import Stream
from sciformer.evaluation.evaluate import predict
from sciformer.inspection import faithfulness as reasons
from sciformer.inspection.faithfulness import (
    LEAST_ATTENDED_WAY,
    RANDOM_WAY,
    choose_tokens,
    faithfulness,
    ratios,
    takes_any,
)
from tests.domains.jets.jets_table import jets
from tests.errors import refuses
from tests.inspection.plots.test_heads import PARTICLES, PATCHES, assembled
from tests.inspection.test_attribution import IMAGES, looking_at_one

WAYS = ["attention", "rollout", "attribution", "gradient"]


def test_the_highest_are_chosen_one_or_more_and_never_all():
    stream = Stream({"x": np.arange(7)}, np.array([4, 2, 1]))
    scores, may = [np.array([0.0, 3, 1, 2]), np.array([1.0, 1]), np.array([5.0])], np.ones(7, bool)
    assert choose_tokens(stream, scores, may, 0.5).tolist() == [False, True, False, True, True, False, False]
    assert choose_tokens(stream, scores, may, 0.01).tolist() == [False, True, False, False, True, False, False]
    assert choose_tokens(stream, scores, may, 0.99).sum() == 3 + 1
    may[1] = False
    assert choose_tokens(stream, scores, may, 0.3).tolist() == [False, False, False, True, True, False, False]


def test_ratios_by_hand():
    change = {"attention": np.array([[2.0, 4.0], [2.0, 0.0]]), RANDOM_WAY: np.array([[1.0, 1.0], [1.0, 1.0]])}
    (value, error), *others = ratios(np.array([0.5, 1.0]), change).values()
    assert not others
    assert value == pytest.approx((2.0 + 1.0) / (0.75 + 0.75))
    leave_one_out = np.array([1.0 / 0.75, 2.0 / 0.75])
    assert error == pytest.approx(np.sqrt(0.5 * ((leave_one_out - leave_one_out.mean()) ** 2).sum()))
    nothing = ratios(np.array([0.5]), {"attention": np.ones((2, 1)), RANDOM_WAY: np.zeros((2, 1))})["attention"]
    assert np.isnan(nothing).all()
    of_one = ratios(np.array([0.5]), {"attention": np.ones((1, 1)), RANDOM_WAY: np.ones((1, 1))})["attention"]
    assert np.isnan(of_one[1])


@pytest.mark.parametrize("how", ["remove", "blank"])
def test_what_one_token_decides(how):
    made, step, batch = looking_at_one()
    found = faithfulness(step, made, batch, shares=(0.1, 0.25), how=how, draws=8)
    assert list(found.change) == [*WAYS, LEAST_ATTENDED_WAY, RANDOM_WAY]
    assert found.removed is (how == "remove")
    for way in WAYS:
        value, error = found.ratio[way]
        assert value - error > 2, (way, value, error)
    assert found.ratio[LEAST_ATTENDED_WAY][0] < 0.2
    assert found.change["attention"].mean(0) == pytest.approx([80, 80], rel=0.05)  # all that there is
    assert found.flipped["attention"].tolist() == found.flipped[LEAST_ATTENDED_WAY].tolist() == [0, 0]
    assert len(reasons.draw_faithfulness(found).axes[0].lines) >= 6
    assert "attention × gradient" in reasons.summarize_ratios(found)
    assert reasons.to_json(found)["ratio"]["attention"]["value"] == found.ratio["attention"][0]


def test_the_same_call_gives_the_same_numbers():
    made, step, batch = assembled(PARTICLES, jets((6, 1, 9, 3)), pool="class_attention")
    one, two = (faithfulness(step, made, batch) for _ in range(2))
    assert one.removed
    for way, each in one.change.items():
        assert each.shape == (3, 4)  # the one with a single particle has nothing to choose from
        assert (each == two.change[way]).all()


def test_scores_of_ones_own():
    made, step, batch = assembled(PATCHES, IMAGES)
    found = faithfulness(step, made, batch, scores={"mine": [np.arange(6.0)] * 4})
    assert list(found.change) == ["mine", RANDOM_WAY]


def test_left_out_or_blanked():
    made, step, batch = assembled(PATCHES, IMAGES)
    (tokens,) = made.tokens.values()
    out = np.zeros(24, bool)
    out[[0, 5, 7]] = True
    assert reasons.remove_tokens(tokens, batch, out, removed=True).stream.lengths.tolist() == [4, 5, 6, 6]
    blank = reasons.remove_tokens(tokens, batch, out, removed=False).stream
    assert blank.lengths.tolist() == [6] * 4
    assert (tokens.normalise(blank).columns["patch"][out] == 0).all()
    assert takes_any(made, tokens)
    for trunk in ("convolution", "lstm"):
        made, step, batch = assembled(PATCHES, IMAGES, trunk=trunk)
        assert not takes_any(made, tokens)
        assert not faithfulness(step, made, batch).removed
    particles = assembled(PARTICLES, jets((6, 2)), trunk="deep_sets", widths=[16])[0]
    assert takes_any(particles, *particles.tokens.values())


def test_special_tokens_stay(tmp_path):
    text = np.array(["a b c", "b"], object)
    tokens = {"kind": "text", "unit": "words", "begin": True, "context": 8}
    made, step, batch = assembled(tokens, {"text": text})
    (kind,) = made.tokens.values()
    may = reasons.removable_tokens(kind, batch.stream)
    assert batch.stream.lengths.tolist() == [4, 2]
    assert may.tolist() == [False, True, True, True, True, True]  # of one word there is nothing to choose from
    assert list(faithfulness(step, made, batch).flipped) == [*WAYS, LEAST_ATTENDED_WAY, RANDOM_WAY]


def test_the_answer_that_is_followed_back_has_a_name():
    made, step, batch = assembled(PATCHES, IMAGES)
    best = predict(step, made, made.samples(IMAGES)).outputs["probabilities"].argmax(1)
    assert reasons.choose_answers(step, made, batch) == [str(made.objective.classes[i]) for i in best]


def test_values():
    made, step, batch = assembled(PATCHES, IMAGES, objective={"kind": "regress", "targets": ["x"]})
    assert set(reasons.choose_answers(step, made, batch)) == {"x"}
    found = faithfulness(step, made, batch)
    assert found.flipped == {}
    assert reasons.draw_faithfulness(found).axes[0].get_ylabel() == "change of the values, in standard deviations"


def test_what_cannot_be_asked():
    made, step, batch = assembled(PATCHES, IMAGES)
    for bad in ((0.0,), (0.5, 1.0)):
        with refuses(list(bad)):
            faithfulness(step, made, batch, shares=bad)
    with refuses("auto, remove, blank", "drop"):
        faithfulness(step, made, batch, how="drop")
    made, step, batch = assembled(PATCHES, IMAGES, objective={"kind": "masked"})
    with refuses("objective.kind: masked"):
        faithfulness(step, made, batch)


def test_reasons_are_drawn_beside_the_sample():
    made, step, batch = looking_at_one()
    scores = {"attention": [np.arange(12.0)] * 6, "mine": [-np.ones(12)] * 6}
    figure = reasons.draw_reasons(made, batch, scores, 2)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["sample", "attention\nup to 2.0 × mean", "mine\nnearly uniform", ""]  # and a colour bar

    class One:
        model = step.model

    assert reasons.affordable_samples(One(), 12) == 48
    assert reasons.affordable_samples(One(), 1e9) == 0
