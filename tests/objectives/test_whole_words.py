"""What is asked for: shares, whole words, never special tokens; and only that is read out."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data import batch as batch_module
from sciformer.data.batch import Batch, Stream
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.domains.text.tokens import Text, as_table
from sciformer.objectives.masked import PLACES, Masked, first_of
from sciformer.tokens.protocols import Readout
from tests.objectives.examples import double, frozen_step_of, make, ready, step_of

WORDS = ["the cat sat on the mat", "unbelievable", "a", "", "cats cat the mat sat unbelievably on on"]


def stream_of(words):
    """Tokens of samples given by the lengths of their words; 0 is a special token, of no word."""
    word = [[-1] if not n else [number] * n for sample in words for number, n in enumerate(sample)]
    flat = np.array([number for part in word for number in part], np.int32)
    lengths = np.array([sum(max(1, n) for n in sample) for sample in words], np.int64)
    return Stream({"ids": np.arange(len(flat), dtype=np.int32) % 7, "word": flat}, lengths)


class Beads(Text):
    """Tokens of which those without a word are special."""

    def maskable(self, stream):
        return stream.columns["word"] >= 0


def corrupted(stream, objective, seed=0):
    tokens = Beads(kind="text")
    tokens.fit([as_table(["abcdefg"])])
    batch = Batch({"tokens": stream}, ids=np.arange(len(stream)))
    return objective.corrupt(batch, {"tokens": tokens}, SampleRandom(seed, 0, batch.ids)), tokens


samples = st.lists(st.lists(st.integers(0, 6), max_size=12), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(samples, st.floats(0.01, 1.0), st.integers(0, 5))
def test_tokens_are_asked_for_in_a_table_as_in_a_list(words, share, seed):
    """Without words, a table gives the same as the order of all tokens does; so does a sample alone."""
    stream, objective = stream_of(words), Masked(kind="masked", mask_ratio=share)
    found = []
    for room in (1 << 40, -1):
        with mock.patch.object(batch_module, "MAX_PLACES_PER_VALUE", room):
            found.append(corrupted(stream, objective, seed)[0].stream.columns["asked"])
    assert np.array_equal(*found)
    may = np.bincount(stream.sample[stream.columns["word"] >= 0], minlength=len(stream))
    wanted = np.where(may > 0, np.maximum(1, np.round(share * may)), 0)
    assert np.array_equal(np.bincount(stream.sample, found[0], len(stream)), wanted)


@settings(max_examples=150, deadline=None)
@given(samples, st.floats(0.01, 1.0), st.integers(0, 5))
def test_words_share_their_fate(words, share, seed):
    stream = stream_of(words)
    batch, tokens = corrupted(
        stream, Masked(kind="masked", mask_ratio=share, random=0.2, same=0.2, whole_words=True), seed
    )
    columns = batch.stream.columns
    asked, hidden, changed = columns["asked"], columns["hidden"], columns["ids"] != columns["target ids"]
    assert not (asked & (stream.columns["word"] < 0)).any()
    assert not ((hidden | changed) & ~asked).any()
    np.testing.assert_array_equal(columns["ids"] == tokens.mask, hidden)
    for row, sample in enumerate(words):
        mine = stream.sample == row
        total = sum(sample)
        wanted = max(1, round(share * total))
        chosen = asked[mine].sum()
        longest = max(sample, default=0)
        assert (chosen > 0) == (total > 0)
        if total and chosen > longest:  # the first word may be longer than all that is wanted
            assert abs(chosen - wanted) <= longest / 2 + 0.5
        for number in range(len(sample)):
            word = mine & (stream.columns["word"] == number)
            assert len(set(zip(asked[word], hidden[word]))) <= 1
    alone, _ = corrupted(stream.take(np.array([0])), Masked(kind="masked", mask_ratio=share, whole_words=True), seed)
    company, _ = corrupted(stream, Masked(kind="masked", mask_ratio=share, whole_words=True), seed)
    first = company.stream.take(np.array([0]))
    np.testing.assert_array_equal(alone.stream.columns["asked"], first.columns["asked"])


def test_the_share_is_right_on_average_also_for_long_words():
    rng = np.random.default_rng(0)
    words = [rng.integers(1, 6, 30).tolist() for _ in range(400)]
    stream = stream_of(words)
    batch, _ = corrupted(stream, Masked(kind="masked", mask_ratio=0.15, whole_words=True))
    asked = batch.stream.columns["asked"]
    assert abs(asked.mean() - 0.15) < 0.005
    sizes = np.concatenate([np.repeat(sample, sample) for sample in words])
    rates = [asked[sizes == n].mean() for n in range(1, 6)]  # neither short nor long words are preferred by much
    assert max(rates) - min(rates) < 0.05


def test_a_word_cut_by_a_window_is_whole_in_each_part():
    stream = stream_of([[3, 2, 4]])
    cut = stream.cut(np.array([0, 4]), np.array([4, 5]))
    assert first_of(cut).tolist() == [0, 0, 0, 3, 4, 5, 5, 5, 5]
    assert first_of(Stream({"word": np.zeros(0, np.int32)}, np.zeros(2, np.int64))).tolist() == []


def test_text_of_subwords_end_to_end():
    tokens = Text(kind="text", unit="wordpiece", vocabulary=40, context=64, begin=True, end=True)
    tokens.fit([as_table(WORDS * 3)])
    raw = tokens.tokenize(as_table(WORDS))
    ids = np.arange(len(WORDS))
    objective = Masked(kind="masked", mask_ratio=0.5, whole_words=True, random=0.1, same=0.1)
    seen = np.zeros(int(raw.lengths.sum()), bool)
    for seed in range(30):
        batch = prepare(
            Batch({"tokens": raw}, ids=ids), {"tokens": tokens}, objective, SampleRandom(seed, 0, ids), True
        )
        seen |= batch.stream.columns["asked"]
    special = np.isin(raw.columns["ids"], list(tokens.specials.values()))
    np.testing.assert_array_equal(seen, ~special)  # all that may be asked for is asked for, sooner or later


@pytest.mark.parametrize("domain", ["text", "patches"])
@pytest.mark.parametrize(("share", "compiled"), [(0.1, False), (0.5, False), (1.0, False), (0.3, True)])
def test_only_what_is_asked_for_is_read_out(domain, share, compiled, monkeypatch):
    parts = make(domain, Masked(kind="masked", mask_ratio=share))
    batch, step = ready(parts), step_of(parts).double()
    asked = int(batch.stream.columns["asked"].sum())
    for inputs in (batch.inputs(), batch.inputs(packed=True), batch.inputs(multiple=16, rows=9)):
        view = double(inputs).stream
        hidden = step.model.tokens(step.model.encode(view)).flatten(0, -2)
        width = view.columns["asked"].dim()
        target = {name[7:]: c.flatten(0, width - 1) for name, c in view.columns.items() if name.startswith("target ")}
        dense = Readout.total(step.model.readout, hidden, target, view.columns["asked"].flatten().bool())
        gradient = torch.autograd.grad(dense, list(step.parameters()))
        rows, total = [], type(step.model.readout).total

        def counted(readout, hidden, *more, rows=rows, total=total):
            rows.append(len(hidden))
            return total(readout, hidden, *more)

        with monkeypatch.context() as patch:
            patch.setattr(type(step.model.readout), "total", counted)
            patch.setattr(torch.compiler, "is_compiling", lambda: compiled)  # then shapes are fixed
            loss, _ = step(inputs)
        torch.testing.assert_close(loss, dense)
        whole, found = step(inputs, True)
        torch.testing.assert_close(torch.stack([whole, found["loss"].sum()]), dense.expand(2))
        assert int(found["count"].sum()) == batch.count == asked
        for one, other in zip(torch.autograd.grad(loss, list(step.parameters())), gradient):
            torch.testing.assert_close(one, other)
        assert rows == [inputs.samples[PLACES].numel() if compiled else asked]


def test_places_have_few_shapes_and_hold_all_that_is_asked():
    for share in (0.15, 0.4, 1.0):
        batch = ready(make("text", Masked(kind="masked", mask_ratio=share)))
        places, asked = batch.samples[PLACES], batch.stream.columns["asked"]
        assert places.shape[1] % 16 == 0
        found = {(row, int(place) - 1) for row in range(len(places)) for place in places[row] if place}
        expected = set(zip(batch.stream.sample[asked].tolist(), batch.stream.position[asked].tolist()))
        assert found == expected


def test_metrics_of_tokens():
    parts = make("text", Masked(kind="masked", mask_ratio=0.5, metrics=["perplexity", "token_accuracy"]))
    inputs, step = ready(parts).inputs(), frozen_step_of(parts)
    loss, found = step(inputs, True)
    logits = step.model.readout(step.model.tokens(step.model.encode(inputs.stream)))
    asked, target = inputs.stream.columns["asked"].bool(), inputs.stream.columns["target ids"]
    right = ((logits.argmax(-1) == target) & asked).sum(1)
    assert found["correct"].tolist() == right.tolist()
    assert found["count"].tolist() == asked.sum(1).tolist()
    torch.testing.assert_close(found["loss"].sum(), loss)
    scores = parts[1].score({name: value.double().numpy() for name, value in found.items()})
    assert scores["token_accuracy"] == float(right.sum() / asked.sum())
    np.testing.assert_allclose(scores["perplexity"], float((loss / asked.sum()).exp()), rtol=1e-5)
