"""Beam search against exhaustive search, on decoders that are small enough for it."""

import itertools
import math

import pytest
import torch

from sciformer.generation.beam_search import Hypothesis, beam_search, normalise_score

END = 0


class Toy:
    """A decoder with any distribution after any prefix, drawn from a seed."""

    def __init__(self, samples, size, seed):
        self.size, self.seed = size, seed
        self.prefixes = [(sample, ()) for sample in range(samples)]
        self.steps = 0

    def logs(self, sample, prefix):
        number = hash((self.seed, sample, prefix)) % (1 << 31)
        logits = 2 * torch.randn(self.size, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        return logits.log_softmax(-1)

    def first(self):
        return torch.stack([self.logs(*prefix) for prefix in self.prefixes])

    def step(self, last):
        self.steps += 1
        self.prefixes = [(sample, (*ids, int(token))) for (sample, ids), token in zip(self.prefixes, last)]
        return self.first() + 3.0  # logits need not be normalised

    def reorder(self, rows):
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]

    def log(self, sample, ids):
        """The log probability of a whole sequence, its end included."""
        steps = [self.logs(sample, ids[:i])[token] for i, token in enumerate((*ids, END))]
        return float(sum(steps))


def best(toy, sample, longest, penalty, allowed):
    found = [
        Hypothesis(list(ids), normalise_score(toy.log(sample, ids), len(ids) + 1, penalty))
        for length in range(longest + 1)
        for ids in itertools.product(allowed, repeat=length)
    ]
    return max(found, key=lambda one: one.score)


def searched(toy, longest, **options):
    return beam_search(toy.step, toy.reorder, toy.first(), END, torch.tensor(longest), **options)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_beam_finds_the_exact_argmax(seed, penalty):
    toy, longest = Toy(3, 4, seed), [3, 1, 2]
    found = searched(toy, longest, beam=4**4, penalty=penalty)
    for sample in range(3):
        exact = best(toy, sample, longest[sample], penalty, [1, 2, 3])
        assert found[sample][0].ids == exact.ids
        assert math.isclose(found[sample][0].score, exact.score, abs_tol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_scores_are_those_of_the_sequences_and_fall(seed):
    toy, longest = Toy(4, 7, seed), [6, 4, 0, 9]
    found = searched(toy, longest, beam=3)
    for sample, hypotheses in enumerate(found):
        assert 1 <= len(hypotheses) <= 5
        assert len({tuple(one.ids) for one in hypotheses}) == len(hypotheses)
        for one in hypotheses:
            assert len(one.ids) <= longest[sample]
            assert END not in one.ids
            exact = normalise_score(toy.log(sample, tuple(one.ids)), len(one.ids) + 1, 0.6)
            assert math.isclose(one.score, exact, abs_tol=1e-9)
        assert hypotheses == sorted(hypotheses, key=lambda one: -one.score)


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_of_one_is_greedy(seed):
    toy = Toy(2, 5, seed)
    found = searched(toy, [8, 8])
    for sample in range(2):
        ids = ()
        while len(ids) < 8 and (token := int(toy.logs(sample, ids).argmax())) != END:
            ids = (*ids, token)
        assert found[sample][0].ids == list(ids)


def test_forbidden_tokens_are_never_written():
    allowed = torch.tensor([False, True, False, True, True])
    toy = Toy(2, 5, 3)
    found = searched(toy, [3, 3], beam=5**3, allowed=allowed)
    for sample in range(2):
        assert found[sample][0].ids == best(toy, sample, 3, 0.6, [1, 3, 4]).ids
        assert all(2 not in one.ids for one in found[sample])


def test_a_sample_that_is_done_costs_no_more_steps():
    toy = Toy(2, 5, 0)
    searched(toy, [0, 0], beam=4)
    assert toy.steps == 0


def test_samples_do_not_touch_each_other():
    alone, first = (searched(Toy(len(longest), 6, 5), longest, beam=3)[0] for longest in ([5], [5, 2, 7, 0]))
    assert [one.ids for one in alone] == [one.ids for one in first]
