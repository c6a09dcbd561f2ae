from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.sampler import BatchSampler, PackedSampler, TokenBudgetSampler, rounded, share
from tests.errors import refuses


def epoch_of(order, epoch):
    return [order(epoch, step) for step in range(order.batches)]


def build(count, batch, seed, kind, rng):
    lengths = rng.integers(0, 30, count) if kind == "lengths" else None
    chunks = None
    if kind == "chunks":
        cuts = np.sort(rng.integers(0, count + 1, 5))  # some pieces are empty
        chunks = np.diff([0, *cuts, count])
    return BatchSampler(count, batch, seed, lengths=lengths, window=3, chunks=chunks, near=2)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 2**40), st.sampled_from(["plain", "lengths", "chunks"]))
def test_an_epoch_has_every_sample_at_most_once(count, batch, seed, kind):
    order = build(count, batch, seed, kind, np.random.default_rng(seed))
    batches = epoch_of(order, 3)
    size = min(batch, count)
    assert len(batches) == order.batches == count // size
    assert all(len(ids) == size for ids in batches)
    ids = np.concatenate(batches)
    assert len(np.unique(ids)) == len(ids)
    assert ids.min() >= 0
    assert ids.max() < count
    again = build(count, batch, seed, kind, np.random.default_rng(seed))
    step = seed % order.batches
    np.testing.assert_array_equal(again(3, step), batches[step])  # a pure function, from any step


@pytest.mark.parametrize("kind", ["plain", "lengths", "chunks"])
def test_another_order_in_every_epoch_and_for_every_seed(kind):
    def ids(seed, epoch):
        return np.concatenate(epoch_of(build(100, 10, seed, kind, np.random.default_rng(0)), epoch)).tolist()

    orders = [ids(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert len({tuple(order) for order in orders}) == 6
    for first, second in pairwise(orders):
        assert sum(a == b for a, b in zip(first, second)) < 25
    left = [
        set(range(103)) - set(np.concatenate(epoch_of(BatchSampler(103, 10), epoch)).tolist()) for epoch in range(20)
    ]
    assert all(len(some) == 3 for some in left)
    assert len(set.union(*left)) > 30  # others are left out each time


def test_buckets_are_alike_and_the_longest_are_not_left_out():
    lengths = np.random.default_rng(0).integers(1, 1000, 1009)
    buckets, mixed = (BatchSampler(1009, 16, lengths=given, window=20) for given in (lengths, None))

    def spread(order):
        return np.mean([np.ptp(lengths[ids]) for epoch in (0, 1) for ids in epoch_of(order, epoch)])

    assert spread(buckets) < spread(mixed) / 5
    longest = set(np.argsort(lengths)[-20:].tolist())
    missed = [longest - set(np.concatenate(epoch_of(buckets, epoch)).tolist()) for epoch in range(12)]
    assert sum(len(some) for some in missed) < 9  # of 240; one in 1009 samples is left out at random
    first = [lengths[buckets(epoch, 0)].mean() for epoch in range(20)]
    assert np.std(first) > 150  # an epoch does not begin with the short ones


def test_the_widest_batch_has_the_longest_sample_of_the_first_epoch():
    lengths = np.random.default_rng(3).permutation(500)
    order = BatchSampler(500, 16, lengths=lengths, window=5)
    seen = [int(lengths[ids].max()) for ids in epoch_of(order, 0)]
    assert seen[order.widest()] == max(seen)
    assert order.widest() != 0  # the first batch is not the widest here
    assert BatchSampler(500, 16).widest() == 0


def test_equal_lengths_are_no_buckets():
    plain, equal = BatchSampler(50, 7), BatchSampler(50, 7, lengths=np.full(50, 3))
    np.testing.assert_array_equal(plain(2, 3), equal(2, 3))


def test_only_some_pieces_are_needed_at_a_time():
    sizes = np.random.default_rng(1).integers(8, 40, 30)
    piece = np.repeat(np.arange(30), sizes)
    for near in (1, 3, 4):
        order = BatchSampler(int(sizes.sum()), 8, chunks=sizes, near=near)
        first, last = {}, {}
        for step, ids in enumerate(epoch_of(order, 5)):
            used = set(piece[ids].tolist())
            first = dict.fromkeys(used, step) | first
            last |= dict.fromkeys(used, step)
        held = [sum(first[p] <= step <= last[p] for p in first) for step in range(order.batches)]
        assert max(held) <= 2 * near  # at the boundary of two neighbourhoods
        assert np.median(held) <= near
    mixed = [len(set(piece[ids].tolist())) for ids in epoch_of(BatchSampler(int(sizes.sum()), 8, chunks=sizes), 0)]
    assert np.mean(mixed) > 2  # pieces are mixed with their neighbours


@given(st.integers(0, 40), st.integers(1, 12))
def test_ranks_share_a_batch(count, world):
    ids = np.random.default_rng(0).permutation(count)
    parts = [share(ids, rank, world) for rank in range(world)]
    np.testing.assert_array_equal(np.concatenate(parts), ids)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_steps_may_be_asked_for_in_any_order():
    order = BatchSampler(1000, 3, 5)
    with ThreadPoolExecutor(4) as pool:
        steps = [(epoch, step) for step in range(300) for epoch in range(3)]
        found = list(pool.map(lambda at: order(*at), steps))
    ids = [np.concatenate([f for f, (e, _) in zip(found, steps) if e == epoch]) for epoch in range(3)]
    assert [len(np.unique(some)) for some in ids] == [900] * 3


def test_small_counts_and_mistakes():
    assert BatchSampler(1, 64)(7, 0).tolist() == [0]
    small = BatchSampler(5, 64, lengths=[3, 1, 2, 9, 9])
    assert small.batches == 1
    assert small.batch == 5
    assert sorted(small(0, 0).tolist()) == [0, 1, 2, 3, 4]
    assert BatchSampler(10, 3).at(7) == (2, 1)
    for given_, key, mentions in [
        ({"count": 0, "batch": 1}, None, []),
        ({"count": 1, "batch": 0}, "train.batch", [0]),
        ({"count": 5, "batch": 2, "chunks": [2, 2]}, None, [5, 4]),
    ]:
        with refuses(*mentions, key=key):
            BatchSampler(**given_)


# Batches by tokens


def budget_of(widths, tokens, seed, multiple=None, chunked=False, kind=TokenBudgetSampler):
    chunks = np.diff([0, len(widths) // 3, len(widths) // 2, len(widths)]) if chunked else None
    more = {"multiple": multiple} if kind is TokenBudgetSampler else {}
    return kind(widths, tokens, seed, chunks=chunks, near=2, **more)


widths_of_samples = st.lists(st.integers(0, 90), min_size=1, max_size=120)


@settings(max_examples=60, deadline=None)
@given(widths_of_samples, st.integers(1, 400), st.integers(0, 2**40), st.sampled_from([None, 1, 8, 32]), st.booleans())
def test_batches_of_tokens_hold_every_sample_once_and_keep_to_their_budget(widths, tokens, seed, multiple, chunked):
    widths = np.array(widths)
    order = budget_of(widths, tokens, seed, multiple, chunked)
    rooms = set()
    for epoch in (0, 5):
        batches = epoch_of(order, epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(widths)))
        for step, ids in enumerate(batches):
            rows, width = order.room(epoch, step)
            rooms.add((rows, width))
            assert 1 <= len(ids) <= rows
            assert widths[ids].max() <= width
            assert rows * width <= tokens or rows == 1
            assert order.room(epoch, step, 3) == (-(-rows // 3), width)
    assert len(rooms) == len({width for _, width in rooms}) == order.shapes(1)  # as many shapes as kinds of width
    again, step = budget_of(widths, tokens, seed, multiple, chunked), seed % order.batches
    np.testing.assert_array_equal(again(5, step), batches[step])  # a pure function, from any step
    assert again.room(5, step) == order.room(5, step)
    np.testing.assert_array_equal(order(0, step), epoch_of(again, 0)[step])  # and back in an earlier epoch
    assert widths.max() in widths[order(0, order.widest())]


def test_the_order_of_tokens_is_another_in_every_epoch_and_for_every_seed():
    widths = np.random.default_rng(0).integers(1, 60, 300)
    for kind in (TokenBudgetSampler, PackedSampler):
        orders = [
            np.concatenate(epoch_of(budget_of(widths, 256, seed, kind=kind), e)) for seed in (0, 1) for e in (0, 1)
        ]
        for first, second in pairwise(orders):
            assert (first == second).mean() < 0.05
    first = [widths[budget_of(widths, 256, seed)(0, 0)].mean() for seed in range(12)]
    assert np.std(first) > 5  # an epoch does not begin with the short ones


def test_few_kinds_of_width_and_little_padding():
    widths = np.random.default_rng(0).lognormal(3, 0.6, 5000).astype(int)
    order = TokenBudgetSampler(widths, 4096)
    assert order.shapes(1) < 24
    padded = sum(len(ids) * order.room(0, step)[1] for step, ids in enumerate(epoch_of(order, 0)))
    assert padded < 1.4 * widths.sum()
    full = np.mean([len(ids) * order.room(0, step)[1] > 3500 for step, ids in enumerate(epoch_of(order, 0))])
    assert full > 0.8
    rounded_up = TokenBudgetSampler(np.random.default_rng(0).integers(5, 50, 1000), 1024, multiple=16)
    assert rounded_up.kinds.tolist() == [16, 32, 48, 64]


@given(st.integers(0, 10**6), st.sampled_from([None, 1, 7, 32]))
def test_rounding_up(width, multiple):
    found = int(rounded(np.array(width), multiple))
    assert found >= max(1, width)
    assert found % (multiple or 16) == 0
    assert found - width <= max(16 if multiple is None else multiple, 0 if multiple else width / 4)
    assert int(rounded(np.array(found), multiple)) == found


@settings(max_examples=60, deadline=None)
@given(widths_of_samples, st.integers(1, 900), st.integers(0, 2**40), st.booleans())
def test_packed_batches_hold_every_sample_once_and_nearly_as_many_tokens(widths, tokens, seed, chunked):
    widths = np.array(widths)
    order = budget_of(widths, tokens, seed, chunked=chunked, kind=PackedSampler)
    longest = max(1, int(widths.max()))
    for epoch in (0, 5):
        batches = epoch_of(order, epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(widths)))
        assert all(len(ids) for ids in batches)
        assert all(widths[ids].sum() <= max(tokens, 3 * longest) for ids in batches)
        assert all(order.room(epoch, step)[0] >= len(ids) for step, ids in enumerate(batches))
    again, step = budget_of(widths, tokens, seed, chunked=chunked, kind=PackedSampler), seed % order.batches
    np.testing.assert_array_equal(again(5, step), batches[step])


def test_packed_batches_are_nearly_full():
    widths = np.random.default_rng(0).integers(1, 40, 5000)
    held = [widths[ids].sum() for ids in epoch_of(PackedSampler(widths, 2048), 3)]
    assert max(held) <= 2048
    assert min(held) > 2048 - 2 * 40 - 2


def test_pieces_stay_together_in_batches_of_tokens():
    sizes = np.full(24, 200)
    widths, piece = np.random.default_rng(0).integers(1, 60, 4800), np.repeat(np.arange(24), 200)
    for order in (
        TokenBudgetSampler(widths, 512, chunks=sizes, near=3),
        PackedSampler(widths, 512, chunks=sizes, near=3),
    ):
        used = [set(piece[ids].tolist()) for ids in epoch_of(order, 2)]
        held = [len(set.union(*used[start : start + 10])) for start in range(0, len(used) - 10, 10)]
        assert np.median(held) <= 6  # of 24: two neighbourhoods
