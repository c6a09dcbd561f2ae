import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.batch import Batch, Stream, describe, join
from sciformer.data.collate import parts, run_of
from sciformer.data.columns import Lists
from tests.errors import refuses

ragged = st.lists(st.integers(0, 6), max_size=8)


def stream_of(lengths, seed=0):
    rng, lengths = np.random.default_rng(seed), np.array(lengths, np.int64)
    total = int(lengths.sum())
    columns = {
        "id": rng.integers(0, 99, total).astype(np.int32),
        "at": rng.normal(size=(total, 2)),
        "trace": rng.normal(size=(total, 3, 2)).astype(np.float32),
        "seen": rng.random(total) < 0.5,
    }
    return Stream(columns, lengths)


def samples(stream):
    """Columns of each sample, computed by a loop."""
    found, start = [], 0
    for n in stream.lengths.tolist():
        found.append({name: column[start : start + n] for name, column in stream.columns.items()})
        start += n
    return found


def assert_samples(stream, expected):
    found = samples(stream)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert list(one) == list(other)
        for name in one:
            assert one[name].dtype == other[name].dtype
            np.testing.assert_array_equal(one[name], other[name])


@settings(max_examples=80, deadline=None)
@given(ragged, st.data())
def test_take_cut_and_keep_against_loops(lengths, data):
    stream = stream_of(lengths)
    whole, count = samples(stream), len(lengths)
    rows = np.array(data.draw(st.lists(st.integers(0, max(0, count - 1)), max_size=9 if count else 0)), np.int64)
    assert_samples(stream.take(rows), [whole[row] for row in rows])
    cuts = []
    for row in rows:
        start = data.draw(st.integers(0, lengths[row]))
        cuts.append((row, start, data.draw(st.integers(0, lengths[row] - start))))
    begins = np.array([stream.starts[row] + start for row, start, _ in cuts], np.int64)
    cut = stream.cut(begins, np.array([n for *_, n in cuts], np.int64))
    assert_samples(cut, [{k: v[a : a + n] for k, v in whole[row].items()} for row, a, n in cuts])
    mask = stream.columns["seen"]
    assert_samples(stream.keep(mask), [{k: v[one["seen"]] for k, v in one.items()} for one in whole])
    assert stream.position.tolist() == [i for n in lengths for i in range(n)]
    assert stream.sample.tolist() == [row for row, n in enumerate(lengths) for _ in range(n)]
    more = stream.with_columns(id=stream.columns["id"] + 1, new=stream.position)
    np.testing.assert_array_equal(more.columns["id"], stream.columns["id"] + 1)
    assert set(more.columns) == {*stream.columns, "new"}
    assert "new" not in stream.columns


@settings(max_examples=80, deadline=None)
@given(st.lists(ragged, min_size=1, max_size=4))
def test_join_is_one_after_the_other(parts):
    batches, start = [], 0
    for i, lengths in enumerate(parts):
        ids = np.arange(start, start + len(lengths))
        columns = {"label": ids * 2, "name": np.array([f"{'x' * i}{j}" for j in ids], dtype=f"U{9 + i}")}
        batches.append(Batch({"tokens": stream_of(lengths, i)}, {**columns, **({"odd": ids} if i else {})}, ids))
        start += len(lengths)
    joined = join(batches)
    assert_samples(joined.stream, [one for batch in batches for one in samples(batch.stream)])
    assert joined.ids.tolist() == list(range(start)) == (joined.samples["label"] // 2).tolist()
    assert [name.strip("x") for name in joined.samples["name"]] == [str(i) for i in range(start)]
    assert ("odd" in joined.samples) == (len(parts) == 1 and "odd" in batches[0].samples)
    rows = np.arange(start)[::-1]
    back = joined.take(rows)
    assert back.ids.tolist() == rows.tolist()
    assert_samples(back.stream, samples(joined.stream)[::-1])


@settings(max_examples=80, deadline=None)
@given(ragged, st.sampled_from([1, 2, 4, 64]))
def test_padded_and_packed_inputs_hold_the_same(lengths, multiple):
    batch = Batch({"tokens": stream_of(lengths)}, ids=np.arange(len(lengths)))
    padded, packed = batch.inputs(multiple=multiple).stream, batch.inputs(packed=True).stream
    wide = -(-max(lengths, default=0) // multiple) * multiple
    assert packed.valid.lengths.tolist() == lengths
    assert packed.valid.longest == max(lengths, default=0)
    for name, column in batch.stream.columns.items():
        dtype = {"id": torch.int64, "at": torch.float32, "trace": torch.float32, "seen": torch.bool}[name]
        assert padded.columns[name].dtype == packed.columns[name].dtype == dtype
        assert padded.columns[name].shape == (len(lengths), wide, *column.shape[1:])
        np.testing.assert_array_equal(packed.columns[name].numpy(), column.astype(packed.columns[name].numpy().dtype))
        dense = padded.columns[name]
        if padded.valid is None:
            assert all(n == wide for n in lengths)
            assert torch.equal(dense.flatten(0, 1), packed.columns[name])
        else:
            assert padded.valid.sum(1).tolist() == lengths
            assert torch.equal(dense[padded.valid], packed.columns[name])
            assert not dense[~padded.valid].any()


def test_types_on_the_way_to_the_model():
    count = 3
    kinds = {"half": np.float16, "double": np.float64, "swapped": ">f8", "long": np.longdouble}
    kinds |= {"byte": np.uint8, "swapped whole": ">i4", "big": np.uint64, "yes": bool}
    given_ = {name: np.arange(count).astype(kind) for name, kind in kinds.items()}
    given_ |= {"words": np.array(["a", "b", "c"]), "things": np.array([None, 1, "x"], object)}
    given_["when"] = np.array(["2024-01-01"] * 3, "datetime64[D]")
    for column in given_.values():
        column.flags.writeable = False  # PyTorch would warn
    found = Batch({}, given_, np.arange(count)).inputs().samples
    assert set(found) == set(kinds)
    for name, tensor in found.items():
        floats = np.dtype(kinds[name]).kind == "f"
        assert tensor.dtype == (torch.float32 if floats else torch.bool if name == "yes" else torch.int64)
        assert tensor.tolist() == [bool(i) if name == "yes" else i for i in range(count)]


def test_wrong_lengths_are_refused():
    with refuses("`x`", 3, 4):
        Stream({"x": np.zeros(4)}, np.array([1, 2]))


def test_columns_in_words():
    found = describe(
        {
            "t": np.array([1.5, np.nan, 3.0]),
            "none": np.full(2, np.nan),
            "phase": np.array(["a", "b", "a"]),
            "many": np.arange(9),
            "image": np.zeros((3, 4, 4)),
            "shape": np.array([[20, 31], [49, 30]]),
            "file": np.array(["/a/long/way/to/some/folder/of/pictures.npz", "x" * 40]),
            "empty": np.zeros(0),
        }
    )
    assert found["t"] == "1.5 to 3"
    assert found["phase"] == "a, b"
    assert found["many"] == "9 different values"
    assert found["image"] == "float64 of shape (4, 4)"
    assert found["shape"] == "20 to 49, 30 to 31"
    assert found["file"] == f"pictures.npz, …{'x' * 31}"
    assert set(found) >= {"none", "empty"}


@given(ragged, st.data())
@settings(max_examples=40, deadline=None)
def test_lists_take_rows(lengths, data):
    lists = Lists(np.arange(sum(lengths)), np.array(lengths, np.int64))
    rows = data.draw(st.lists(st.integers(0, max(0, len(lengths) - 1)), max_size=9 if lengths else 0))
    parts = np.split(lists.values, lists.lengths.cumsum()[:-1]) if lengths else []
    taken = lists.take(np.array(rows, np.int64))
    assert taken.values.tolist() == [i for row in rows for i in parts[row].tolist()]


@settings(max_examples=60, deadline=None)
@given(ragged, st.integers(0, 5), st.integers(0, 9), st.booleans())
def test_fixed_shapes_hold_the_same_samples(lengths, more, width, packed):
    count = len(lengths)
    batch = Batch({"tokens": stream_of(lengths)}, {"y": np.arange(1, count + 1)}, np.arange(count))
    free, fixed = batch.inputs(packed=packed), batch.inputs(packed=packed, width=width, rows=count + more)
    assert free.real is None
    assert fixed.real.tolist() == [True] * count + [False] * more
    assert fixed.samples["y"].tolist() == [*range(1, count + 1), *[0] * more]
    assert fixed.counted(torch.ones(count + more)).tolist() == [1.0] * count + [0.0] * more
    assert free.counted(torch.ones(count)).tolist() == [1.0] * count
    view, total = fixed.stream, sum(lengths)
    for name, column in batch.inputs(packed=True).stream.columns.items():
        if packed:
            assert len(view.columns[name]) == max(total, width) == view.valid.total
            assert torch.equal(view.columns[name][:total], column)
            assert not view.columns[name][total:].any()
        else:
            assert view.columns[name].shape[:2] == (count + more, max([width, *lengths]))
            assert torch.equal(view.columns[name][view.valid], column)
    found = view.valid.lengths if packed else view.valid.sum(1)  # never None: that would be another graph
    assert found.tolist() == lengths + [0] * more
    assert not packed or view.valid.longest >= max(lengths, default=0)


def test_no_further_than_a_model_has_places():
    batch = Batch({"a": stream_of([3, 7]), "b": stream_of([2, 2])}, most={"a": 9, "b": 5})
    assert {name: view.valid.shape[1] for name, view in batch.inputs(width=16).streams.items()} == {"a": 9, "b": 5}
    assert {name: view.valid.shape[1] for name, view in batch.inputs(multiple=4).streams.items()} == {"a": 8, "b": 4}
    assert batch.inputs(packed=True, width=40).streams["a"].valid.longest == 9
    assert batch.take(np.array([0])).most == batch.most
    assert batch.widest() == 7
    assert batch.widest(packed=True) == 10


def test_columns_that_no_model_reads_stay_behind():
    batch = Batch({"a": stream_of([3, 7]), "b": stream_of([2, 2])}, aside={"a": ("at", "trace", "none")})
    for inputs in (batch.inputs(), batch.inputs(packed=True), batch.take(np.array([1])).inputs()):
        assert set(inputs.streams["a"].columns) == {"id", "seen"}
        assert set(inputs.streams["b"].columns) == {"id", "at", "trace", "seen"}


def test_tensors_travel_as_one_run_of_bytes():
    inputs = Batch({"a": stream_of([3, 0, 7])}, {"y": np.array([1.5, 2, 3])}).inputs(width=8, rows=4)
    tensors = list(inputs.tensors())
    run, starts = run_of(tensors, pinned=False)
    there = parts(run.clone(), tensors, starts)
    assert len(tensors) == 4 + 1 + 1 + 1  # columns, valid, y, real
    for part, tensor in zip(there, tensors):
        assert part.dtype == tensor.dtype
        assert torch.equal(part, tensor)
        assert part.data_ptr() % 16 == 0  # wide loads
        assert part._base is None
    assert len({part.untyped_storage().data_ptr() for part in there}) == 1
    assert run_of([], pinned=False)[0].numel() == 0


def test_what_moves_is_laid_out_where_it_goes():
    batch = Batch({"a": stream_of([3, 0, 7])})
    here, moved = (batch.inputs(packed=True, width=16, moves=moves).stream.valid for moves in (False, True))
    assert not hasattr(moved, "sample")
    there = batch.inputs(packed=True, width=16, moves=True).to(torch.device("meta")).stream.valid
    assert there.sample.is_meta
    assert there.sample.shape == here.sample.shape
    assert (there.total, there.longest, there.pairs) == (here.total, here.longest, here.pairs)
    assert torch.equal(moved.lengths, here.lengths)


def test_coordinates_that_all_samples_share_are_sent_once():
    place = np.stack(np.meshgrid(np.arange(2), np.arange(3), indexing="ij"), -1).reshape(-1, 2)
    stream = Stream({"id": np.arange(12), "at": np.tile(place, (2, 1))}, np.array([6, 6]))
    other = stream.with_columns(at=stream.columns["at"] + stream.sample[:, None])
    assert Batch({"a": stream}).inputs().stream.columns["at"].shape == (2, 6, 2)
    assert Batch({"a": stream}).inputs(shares=True).stream.columns["at"].tolist() == place.tolist()
    for kept in (other, Stream({"at": place[:4]}, np.array([2, 2]))):  # not the same; so few that they look like more
        assert Batch({"a": kept}).inputs(shares=True).stream.columns["at"].dim() == 3


def test_joined_samples_are_one():
    stream = stream_of([3, 0, 7])
    (whole,) = samples(stream.as_one_sample())
    assert all(np.array_equal(whole[name], column) for name, column in stream.columns.items())
    assert stream_of([]).as_one_sample().lengths.tolist() == [0]


def test_packed_batches_have_room_for_pairs_in_few_sizes():
    rng = np.random.default_rng(0)
    shapes = set()
    for _ in range(50):
        lengths = np.clip(np.round(rng.normal(45, 15, 512)), 2, 128).astype(np.int64)
        stream = Stream({"x": np.zeros(int(lengths.sum()), np.float32)}, lengths)
        ragged = Batch({"a": stream}, most={"a": 128}).inputs(packed=True, width=24576).stream.valid
        pairs = int((lengths * (lengths + 1) // 2).sum())
        assert pairs <= ragged.pairs < 1.25 * pairs
        shapes.add((ragged.total, ragged.longest, ragged.pairs))
    assert len(shapes) == 1
    exact = Batch({"a": stream}).inputs(packed=True).stream.valid
    assert exact.pairs == pairs
