"""How a token is chosen: temperature and cuts by their definition, numbers that depend on the seed alone."""

import numpy as np
import pytest
import torch

from sciformer.generation.sampling import Sampling, draw_uniforms, top_logits_in_parts
from tests.errors import refuses

PROBABILITY = np.array([0.1, 0.4, 0.05, 0.25, 0.2])


def drawn(logits, count=6000, seen=None, **wishes):
    uniform = draw_uniforms(0, count, 1)[0]
    rows = logits.expand(count, -1)
    found = Sampling(**wishes).choose(rows, uniform, None if seen is None else seen.expand(count, -1))
    return np.bincount(found, minlength=logits.shape[-1]) / count


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        ({}, PROBABILITY),
        ({"temperature": 0.5}, PROBABILITY**2),
        ({"temperature": 2.0}, PROBABILITY**0.5),
        ({"temperature": 0.0}, [0, 1, 0, 0, 0]),
        ({"temperature": 1e-30}, [0, 1, 0, 0, 0]),
        ({"temperature": 1e-300}, [0, 1, 0, 0, 0]),
        ({"top_k": 2}, [0, 0.4, 0, 0.25, 0]),
        ({"top_k": 9}, PROBABILITY),
        ({"top_p": 0.39}, [0, 1, 0, 0, 0]),
        ({"top_p": 0.41}, [0, 0.4, 0, 0.25, 0]),
        ({"top_p": 0.9}, [0.1, 0.4, 0, 0.25, 0.2]),
        ({"top_p": 1.0}, PROBABILITY),
        ({"top_k": 3, "top_p": 0.5}, [0, 0.4, 0, 0.25, 0]),
        ({"temperature": 0.5, "top_k": 3, "top_p": 0.7}, [0, 0.16, 0, 0.0625, 0]),
    ],
    ids=str,
)
def test_temperature_top_k_and_top_p_by_their_definition(cuts, expected):
    expected = np.array(expected) / np.sum(expected)
    found = drawn(torch.tensor(PROBABILITY).log().float(), **cuts)
    assert (found[expected == 0] == 0).all()
    np.testing.assert_allclose(found, expected, atol=4 * (0.25 / 6000) ** 0.5)


def test_of_equals_top_k_keeps_no_more_than_k_and_what_is_forbidden_is_never_drawn():
    assert (drawn(torch.zeros(10), 200, top_k=3) > 0).sum() == 3
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf])
    for cuts in ({}, {"top_k": 4}, {"top_p": 0.9}, {"top_p": 1.0}, {"temperature": 0.0}, {"repetition": 3.0}):
        found = drawn(logits, 300, torch.ones(5, dtype=torch.bool), **cuts)
        assert found[[0, 2, 4]].sum() == 0


def test_the_ends_of_the_line_of_numbers_are_tokens_too():
    logits = torch.tensor([[-torch.inf, 1.0, 2.0, -torch.inf]]).expand(2, -1)
    ends = torch.tensor([0.0, 1 - 2.0**-52], dtype=torch.float64)
    assert Sampling().choose(logits, ends).tolist() == [1, 2]
    assert Sampling(top_k=2).choose(logits, ends).tolist() == [2, 1]


def test_repetition_makes_what_was_there_rarer_on_both_sides_of_zero():
    logits = torch.tensor([2.0, 2.0, -1.0, -1.0])
    seen = torch.tensor([True, False, True, False])
    found = drawn(logits, seen=seen, repetition=2.0)
    expected = torch.tensor([1.0, 2.0, -2.0, -1.0]).softmax(-1).numpy()
    np.testing.assert_allclose(found, expected, atol=4 * (0.25 / 6000) ** 0.5)
    greedy = Sampling(temperature=0, repetition=3.0).choose(logits[None] + 1, torch.zeros(1), seen[None])
    assert greedy.tolist() == [1]


@pytest.mark.parametrize("sharp", [0.1, 1.0, 30.0])
def test_top_p_of_a_large_vocabulary_is_that_of_a_whole_sort(sharp):
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0)) * sharp
    uniform = torch.tensor([0.1, 0.5, 0.9999])
    probability, order = logits.softmax(-1).sort(-1, descending=True)
    kept = probability * ((probability.cumsum(-1) - probability) < 0.8)
    place = (kept.double().cumsum(-1) / kept.double().sum(-1, keepdim=True) <= uniform[:, None]).sum(-1)
    assert Sampling(top_p=0.8).choose(logits, uniform).tolist() == order.gather(1, place[:, None])[:, 0].tolist()


def test_the_largest_in_parts_are_the_largest():
    logits = torch.randn(3, 10_000, generator=torch.Generator().manual_seed(0))
    for found, expected in zip(top_logits_in_parts(logits, 50), logits.topk(50)):
        assert torch.equal(found, expected)


def test_numbers_are_uniform_independent_and_of_the_seed_alone():
    first = draw_uniforms(7, 4, 5000)
    assert first.dtype == torch.float64
    assert 0 <= first.min() < first.max() < 1
    counts = torch.histc(first.flatten(), 20, 0, 1)
    assert ((counts - 1000).abs() < 5 * 1000**0.5).all()
    assert torch.corrcoef(first.T).triu(1).abs().max() < 5 / 5000**0.5
    assert torch.equal(draw_uniforms(7, 2, 30), first[:30, :2])
    assert not torch.equal(draw_uniforms(8, 2, 30), first[:30, :2])
    assert not torch.equal(draw_uniforms(None, 2, 30), draw_uniforms(None, 2, 30))
    assert torch.equal(draw_uniforms(-1, 1, 3), draw_uniforms(-1, 1, 3))


WRONG = {"temperature": (-1.0, np.nan, np.inf), "top_k": (0,), "top_p": (0.0, 1.5), "repetition": (0.0, np.inf)}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wishes_that_cannot_be_met(name, value):
    with refuses(name, f"not {value}", key=f"--{name.replace('_', '-')}"):
        Sampling(**{name: value})
