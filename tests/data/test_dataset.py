import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.columns import Lists
from sciformer.data.dataset import Dataset
from sciformer.data.random import SampleRandom
from sciformer.data.sampler import make_sampler
from sciformer.data.source import Chosen, Memory, pieces
from sciformer.data.windows import Windows
from sciformer.domains.text.tokens import Text, as_table
from sciformer.objectives.next_token import NextToken
from tests.data.examples import Cut
from tests.errors import refuses

texts_of = st.lists(st.text("abc", max_size=30), min_size=1, max_size=6)
TEXT = Text(kind="text", unit="bytes")


def words(dataset, ids=None):
    batch = dataset.all() if ids is None else dataset.batch(np.array(ids))
    parts = np.split(batch.stream.columns["ids"], batch.stream.lengths.cumsum()[:-1])
    return [TEXT.decode(part) for part in parts]


def table_of(texts):
    return {**as_table(texts), "label": np.arange(len(texts)), "image": np.ones((len(texts), 2, 2))}


@settings(max_examples=60, deadline=None)
@given(texts_of, st.integers(1, 9))
def test_every_token_but_the_first_is_a_target_once(texts, context):
    dataset = Dataset(Memory(as_table(texts)), {"t": TEXT}, windows={"t": Windows((context + 1,), (context,))})
    batch = NextToken().corrupt(dataset.all(), {"t": TEXT}, SampleRandom(0, 0, np.arange(len(dataset))))
    assert TEXT.decode(batch.stream.columns["target ids"]) == "".join(text[1:] for text in texts)
    assert TEXT.decode(batch.stream.columns["ids"]) == "".join(text[:-1] for text in texts)
    assert (batch.stream.lengths <= context).all()


@settings(max_examples=60, deadline=None)
@given(texts_of, st.data(), st.booleans(), st.integers(1, 3))
def test_pieces_give_the_same_samples(texts, data, windows, near):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=3)))
    sizes = np.diff([0, *cuts, len(texts)])  # some are empty
    options = {"windows": {"t": Windows((5,), (2,))}} if windows else {}
    whole = Dataset(Memory(table_of(texts)), {"t": TEXT}, **options)
    source = Cut(table_of(texts), sizes)
    cut = Dataset(source, {"t": TEXT}, near=near, **options)
    ids = np.array(data.draw(st.permutations(range(len(whole)))), np.int64)
    assert len(cut) == len(whole)
    assert words(cut, ids) == words(whole, ids)
    for dataset in (cut, whole):
        batch = dataset.batch(ids)
        np.testing.assert_array_equal(batch.ids, ids)
        np.testing.assert_array_equal(batch.samples["label"], dataset.sample_column("label")[ids])
        assert batch.samples["image"].shape == (len(ids), 2, 2)
        assert "text" not in batch.samples
    assert len(cut.kept) <= near
    if not windows:
        np.testing.assert_array_equal(cut.lengths, whole.lengths)
        assert whole.lengths.tolist() == [len(text) for text in texts]


def test_pieces_in_memory_are_not_read_again():
    source = Cut(as_table(list("abcdef")), [2, 2, 2])
    dataset = Dataset(source, {"t": TEXT}, near=2)
    source.loads.clear()
    for ids in ([4, 5], [2, 3], [5, 4], [0], [5], [2]):
        assert words(dataset, ids) == ["abcdef"[i] for i in ids]
    assert source.loads == [0, 1]  # 1 and 2 were there; 0 drove out 1, which was used longer ago
    one = Dataset(Cut(as_table(list("abcdef")), [2, 2, 2]), {"t": TEXT}, near=1)
    assert words(one, [5, 0, 3, 1, 4, 2]) == list("fadbec")


def test_no_samples_asked_for_and_none_there():
    dataset = Dataset(Memory(table_of(["ab", "c"])), {"t": TEXT})
    nothing = dataset.batch(np.zeros(0, np.int64))
    assert len(nothing) == 0
    assert nothing.samples["label"].shape == (0,)
    assert len(Dataset(Memory(as_table([])), {"t": TEXT})) == 0
    assert len(empty := Dataset(Memory(as_table([])), {"t": TEXT}, windows={"t": Windows((4,), (4,))})) == 0
    assert empty.widths.shape == (0,)
    assert len(dataset.all(limit=1)) == 1
    with pytest.raises(IndexError):
        dataset.batch(np.array([2]))
    with pytest.raises(IndexError):
        dataset.batch(np.array([-1]))


def test_mistakes():
    dataset = Dataset(Memory(table_of(["ab"])), {"t": TEXT})
    with refuses("label, image", "lable", hint="'label'"):
        dataset.sample_column("lable")
    with refuses("a, b"):
        Dataset(Memory(table_of(["ab"])), {"a": TEXT, "b": TEXT}, windows=dict.fromkeys("ab", Windows((3,), (3,))))
    with refuses("`text`", "`label`", 1, 2):
        Memory({"text": np.array(["a"]), "label": np.arange(2)})


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.data())
@settings(max_examples=40, deadline=None)
def test_chosen_samples_of_pieces(sizes, data):
    count = sum(sizes)
    column, lists = np.arange(count), Lists(np.repeat(np.arange(count), 2), np.full(count, 2))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, max(0, count - 1)), max_size=count))), np.int64)
    chosen = Chosen(Cut({"x": column, "l": lists}, sizes), rows)
    found = list(pieces(chosen))
    assert [i for table in found for i in table["x"].tolist()] == rows.tolist()
    assert [i for table in found for i in table["l"].values.tolist()] == np.repeat(rows, 2).tolist()
    assert chosen.sizes == [len(table["x"]) for table in found]


@given(texts_of, texts_of, st.integers(1, 6), st.integers(1, 6), st.data())
@settings(max_examples=40, deadline=None)
def test_several_streams_are_cut_to_their_windows(left, right, few, more, data):
    count = min(len(left), len(right))
    left, right = left[:count], right[:count]
    table = {"a": as_table(left)["text"], "b": as_table(right)["text"]}
    tokens = {
        "a": Text(kind="text", unit="bytes", column="a", context=few),
        "b": Text(kind="text", unit="bytes", column="b", context=more),
    }
    cut = data.draw(st.integers(0, count))
    for source, near in ((Memory(table), 8), (Cut(table, [cut, count - cut]), 1)):
        dataset = Dataset(source, tokens, near=near)
        for _ in range(2):  # loading a piece again counts nothing twice
            batch = dataset.all()
            for name, texts, most in (("a", left, few), ("b", right, more)):
                stream = batch.streams[name]
                parts = np.split(stream.columns["ids"], stream.lengths.cumsum()[:-1])
                assert [TEXT.decode(part) for part in parts] == [text[:most] for text in texts]
            assert dataset.shortened == sum(len(a) > few or len(b) > more for a, b in zip(left, right))
        assert dataset.widths.tolist() == [max(min(len(a), few), min(len(b), more)) for a, b in zip(left, right)]
        assert dataset.lengths.tolist() == [min(len(a), few) + min(len(b), more) for a, b in zip(left, right)]


def test_short_windows_come_together():
    texts = ["x" * (1 + i * 37 % 60) for i in range(120)]
    tokens = Text(kind="text")
    tokens.fit([as_table(texts)])
    dataset = Dataset(Memory(as_table(texts)), {"tokens": tokens}, windows={"tokens": Windows((64,), (64,))})
    assert dataset.width is None
    padding = {}
    for bucket in (True, False):
        order = make_sampler(dataset, 8, bucket=bucket)
        widths = [dataset.widths[order(0, step)] for step in range(order.batches)]
        padding[bucket] = sum((some.max() - some).sum() for some in widths)
    assert padding[True] < 0.2 * padding[False]
