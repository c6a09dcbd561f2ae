import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.random import SampleRandom, key, permute

MANY = np.arange(20_000)
lengths_of = st.lists(st.integers(0, 9), min_size=1, max_size=12)
words = st.tuples(st.integers(0, 2**63 - 1), st.integers(-1, 10**6))


@settings(max_examples=50, deadline=None)
@given(words, st.lists(st.integers(0, 2**40), min_size=1, max_size=12), st.data())
def test_a_sample_has_its_numbers_whatever_company_it_keeps(word, ids, data):
    lengths = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(ids), max_size=len(ids))), np.int64)
    order = np.array(data.draw(st.permutations(range(len(ids)))))
    chosen = order[: data.draw(st.integers(1, len(ids)))]
    ids = np.array(ids)
    for draw in (SampleRandom.uniform, SampleRandom.normal, lambda rng, name, n=None: rng.integers(name, 7, n)):
        whole, part = SampleRandom(*word, ids), SampleRandom(*word, ids[chosen])
        np.testing.assert_array_equal(draw(whole, "a")[chosen], draw(part, "a"))
        pieces = np.split(draw(whole, "a", lengths), lengths.cumsum()[:-1])
        np.testing.assert_array_equal(np.concatenate([pieces[i] for i in chosen]), draw(part, "a", lengths[chosen]))


@given(words, lengths_of)
@settings(max_examples=50, deadline=None)
def test_the_numbers_of_a_place_do_not_know_the_length(word, lengths):
    ids, lengths = np.arange(len(lengths)), np.array(lengths)
    short = SampleRandom(*word, ids).uniform("a", lengths)
    long = np.split(SampleRandom(*word, ids).uniform("a", lengths + 3), (lengths + 3).cumsum()[:-1])
    np.testing.assert_array_equal(short, np.concatenate([part[:n] for part, n in zip(long, lengths)]))


def streams():
    """Random numbers that must be independent."""
    rng, wide = SampleRandom(0, 0, MANY), np.full(2, 10_000)
    yield rng.uniform("a")
    yield rng.uniform("b")
    yield SampleRandom(0, 1, MANY).uniform("a")
    yield SampleRandom(1, 0, MANY).uniform("a")
    yield SampleRandom(0, -1, MANY).uniform("a")
    yield SampleRandom(0, 0, MANY + 1).uniform("a")
    yield SampleRandom(0, 0, MANY << 40).uniform("a")
    yield np.roll(rng.uniform("a"), 2)
    yield SampleRandom(0, 0, [5, 6]).uniform("a", wide)
    yield SampleRandom(0, 0, [6, 7]).uniform("c", wide)
    yield SampleRandom(0, 0, MANY[:10_000]).uniform("a", np.full(10_000, 2))


def test_uniform_and_independent():
    numbers = np.stack(list(streams()))
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    error = 5 / np.sqrt(12 * len(MANY))  # five deviations of a mean
    assert np.abs(numbers.mean(1) - 0.5).max() < error
    for bins in (10, 64):
        counts = np.stack([np.bincount((row * bins).astype(int), minlength=bins) for row in numbers])
        chi = ((counts - len(MANY) / bins) ** 2).sum(1) / (len(MANY) / bins)
        assert (np.abs(chi - (bins - 1)) < 6 * np.sqrt(2 * bins)).all()
    low = (numbers * 2**53).astype(np.int64) % 16  # the last bits as well
    assert (np.abs(np.stack([np.bincount(row, minlength=16) for row in low]) - 1250) < 200).all()
    correlation = np.corrcoef(numbers) - np.eye(len(numbers))
    assert np.abs(correlation).max() < 5 / np.sqrt(len(MANY))
    assert not (numbers[5, :-1] != numbers[0, 1:]).any()  # the same samples, shifted by one


def test_normal_and_integers():
    rng = SampleRandom(3, 1, MANY)
    normal = rng.normal("n")
    assert abs(normal.mean()) < 0.04
    assert abs(normal.std() - 1) < 0.03
    assert abs((normal**4).mean() - 3) < 0.3
    counts = np.bincount(rng.integers("i", 7), minlength=7)
    assert len(counts) == 7
    assert np.abs(counts - len(MANY) / 7).max() < 300
    assert (rng.integers("i", 1) == 0).all()


def test_names_and_numbers_make_other_keys():
    parts = [(0,), (1,), (-1,), (2**63,), ("a",), ("b",), (0, 0), (0, "a"), ("a", 0), (0, 1), (1, 0), ()]
    assert len({int(key(*part)[0]) for part in parts}) == len(parts)
    assert SampleRandom(0, 0, []).uniform("a").shape == (0,)
    assert SampleRandom(0, 0, []).uniform("a", np.zeros(0, np.int64)).shape == (0,)


@pytest.mark.parametrize("counts", [range(1, 301), (4095, 4096, 4097, 65_537)], ids=["small", "large"])
def test_permute_is_a_bijection(counts):
    for count in counts:
        found = permute(np.arange(count), count, key(count, "x"))
        np.testing.assert_array_equal(np.sort(found), np.arange(count))


def test_permute_goes_one_by_one_and_to_large_numbers():
    word = key(1, "x")
    whole = permute(np.arange(77), 77, word)
    assert [int(permute(i, 77, word)[0]) for i in range(77)] == whole.tolist()
    few = permute(np.arange(1000), 10**15, word)
    assert len(np.unique(few)) == 1000
    assert few.min() >= 0
    assert few.max() < 10**15
    assert abs(few.mean() / 10**15 - 0.5) < 0.05
    assert permute(np.zeros(0, int), 5, word).shape == (0,)


def test_permute_looks_shuffled_and_differs_by_key():
    keys = [key(seed, "x") for seed in range(400)]
    for count in (2, 3, 5, 16, 100):
        found = np.stack([permute(np.arange(count), count, word) for word in keys])  # (keys, count)
        assert len({tuple(row) for row in found}) >= min(400, [0, 1, 2, 6, 24, 115][min(count, 5)]) * 0.9
        places = np.stack([np.bincount(found[:, i], minlength=count) for i in range(count)])
        spread = np.sqrt(400 / count * (1 - 1 / count))
        assert np.abs(places - 400 / count).max() < 5.5 * spread + 1  # every index goes everywhere alike
        if count > 5:
            assert abs(np.mean(found[:, 1:] > found[:, :-1]) - 0.5) < 0.02  # neighbours part
            fixed = (found == np.arange(count)).sum(1).mean()
            assert abs(fixed - 1) < 0.3


def test_keys_of_one_shuffle_and_the_next_are_unrelated():
    first, second = (permute(np.arange(5000), 5000, key(0, "samples", epoch)) for epoch in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.07
    assert abs(np.corrcoef(np.diff(first), np.diff(second))[0, 1]) < 0.07
    assert (first == second).sum() < 8


@settings(max_examples=50, deadline=None)
@given(words, lengths_of)
def test_ranks_are_a_shuffle_of_every_sample(word, lengths):
    lengths = np.array(lengths, np.int64)
    rng = SampleRandom(*word, np.arange(len(lengths)))
    ranks = np.split(rng.ranks("a", lengths), lengths.cumsum()[:-1])
    values = np.split(rng.uniform("a", lengths), lengths.cumsum()[:-1])
    for rank, value, n in zip(ranks, values, lengths):
        assert sorted(rank) == list(range(n))
        np.testing.assert_array_equal(np.argsort(value), np.argsort(rank))


def test_every_rank_is_equally_likely():
    ranks = SampleRandom(0, 0, np.arange(5000)).ranks("a", np.full(5000, 6)).reshape(5000, 6)
    counts = np.stack([np.bincount(column, minlength=6) for column in ranks.T])
    assert np.abs(counts - 5000 / 6).max() < 140
