import numpy as np
import pytest
import torch

from sciformer.data.batch import Batch, Stream, StreamView
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.models.decoder import Decoder
from sciformer.nn.ragged import Ragged
from sciformer.objectives.masked import PLACES, Masked, _rows
from sciformer.objectives.next_token import NextToken
from sciformer.tokens.base import Tokens
from tests.errors import refuses
from tests.objectives.examples import frozen_step_of, make, ready

HIDING = {
    "masked": Masked(kind="masked", mask_ratio=0.4),
    "masked like BERT": Masked(kind="masked", mask_ratio=0.6, random=0.2, same=0.2),
    "all hidden": Masked(kind="masked", mask_ratio=1),
    "whole words": Masked(kind="masked", mask_ratio=0.6, whole_words=True, random=0.2, same=0.2),
}
CASES = [
    *(("text", name) for name in ("masked", "masked like BERT", "all hidden")),
    *(("patches", name) for name in ("masked", "all hidden")),
    *(("subwords", name) for name in HIDING),
]


def columns_of(batch):
    return {name: column for name, column in batch.stream.columns.items() if not name.startswith("target ")}


@pytest.mark.parametrize(("domain", "name"), CASES)
def test_poison_changes_no_input_and_no_prediction(domain, name):
    tokens, objective, dataset = make(domain, HIDING[name])
    raw, ids = dataset.all(), np.arange(len(dataset))
    clean = prepare(raw, tokens, objective, SampleRandom(0, 3, ids), training=False)
    hidden = clean.stream.columns["hidden"]
    model = frozen_step_of((tokens, objective), depth=2).model
    predictions = model.readout.predict(model.tokens(model.encode(clean.inputs().stream)))
    assert hidden.any()
    (column,) = tokens["tokens"].hides
    for poison in (1e6, np.nan, np.inf) if domain == "patches" else (3,):
        values = raw.stream.columns[column].copy()
        if domain != "patches":
            written = np.flatnonzero(tokens["tokens"].writable)
            poison = written[(values[hidden] + poison) % len(written)]
        values[hidden] = poison
        assert not np.array_equal(values, raw.stream.columns[column])
        poisoned = prepare(
            raw.with_columns(raw.stream.with_columns(**{column: values})),
            tokens,
            objective,
            SampleRandom(0, 3, ids),
            training=False,
        )
        changed = columns_of(poisoned)
        assert set(changed) == set(columns_of(clean)) >= {column, "hidden", "asked"}
        for key, expected in columns_of(clean).items():
            np.testing.assert_array_equal(changed[key], expected)
        np.testing.assert_array_equal(poisoned.samples[PLACES], clean.samples[PLACES])
        assert not np.array_equal(poisoned.stream.columns[f"target {column}"], clean.stream.columns[f"target {column}"])
        view = poisoned.inputs().stream
        again = model.readout.predict(model.tokens(model.encode(view)))
        assert torch.equal(again[column], predictions[column])
        view.columns.pop(f"target {column}")
        assert torch.equal(model.readout.predict(model.tokens(model.encode(view)))[column], predictions[column])


def test_poison_behind_a_token_changes_nothing_before_it():
    for domain in ("text", "patches"):
        tokens, objective, dataset = make(domain, "next_token")
        raw, ids = dataset.batch(np.array([3, 6])), np.array([3, 6])
        model = frozen_step_of((tokens, objective), Decoder, depth=2).model
        (column,) = tokens["tokens"].hides
        later = raw.stream.position >= 5
        values = raw.stream.columns[column].copy()
        values[later] = 0 if domain == "text" else 1e6
        hidden = []
        for given in (raw, raw.with_columns(raw.stream.with_columns(**{column: values}))):
            view = prepare(given, tokens, objective, SampleRandom(0, 0, ids), training=False).inputs().stream
            view.columns.pop(f"target {column}")
            hidden.append(model.decode(view))
        assert torch.equal(hidden[0][:, :5], hidden[1][:, :5])
        assert not torch.equal(hidden[0][:, 5:], hidden[1][:, 5:])


def test_the_shares_are_right():
    lengths = np.random.default_rng(1).integers(0, 60, 400)
    tokens, objective, _ = make("text", Masked(kind="masked", mask_ratio=0.3, random=0.1, same=0.2))
    ids = np.random.default_rng(0).integers(0, 5, int(lengths.sum())).astype(np.int32)
    raw = Batch({"tokens": Stream({"ids": ids}, lengths)}, ids=np.arange(400))
    batch = prepare(raw, tokens, objective, SampleRandom(0, 0, raw.ids), training=True)
    columns = batch.stream.columns
    asked, hidden = columns["asked"], columns["hidden"]
    counts = np.bincount(batch.stream.sample[asked], minlength=400)
    np.testing.assert_array_equal(counts, np.where(lengths, np.maximum(1, np.round(0.3 * lengths)), 0))
    assert batch.count == asked.sum() == counts.sum()
    assert abs(hidden[asked].mean() - 0.7) < 0.03
    np.testing.assert_array_equal(columns["target ids"], raw.stream.columns["ids"])
    changed = columns["ids"] != columns["target ids"]
    noisy = (changed & ~hidden)[asked].mean()  # a random token of 8 is sometimes the same
    assert abs(noisy - 0.1 * 7 / 8) < 0.02
    assert 0.4 < batch.stream.position[asked].mean() / batch.stream.position.mean() < 1.3


@pytest.mark.parametrize("lengths", [[4, 4, 4], [1, 1], [0, 0], [5, 0, 1, 3], [], [2]])
def test_next_token_shifts_every_column(lengths):
    tokens, objective, _ = make("patches", "next_token")
    lengths = np.array(lengths, np.int64)
    total = int(lengths.sum())
    stream = Stream(
        {"patch": np.arange(total * 8.0).reshape(total, 8), "at": np.arange(2 * total).reshape(total, 2)}, lengths
    )
    found = objective.corrupt(Batch({"tokens": stream}, ids=np.arange(len(lengths))), tokens, None).stream
    np.testing.assert_array_equal(found.lengths, np.maximum(0, lengths - 1))
    first = [start + i for start, n in zip(stream.starts, lengths) for i in range(n - 1)]
    for name, rows in {"patch": first, "at": first, "target patch": [i + 1 for i in first]}.items():
        column = stream.columns[name.removeprefix("target ")]
        np.testing.assert_array_equal(found.columns[name], column[np.array(rows, int)])
    assert set(found.columns) == {"patch", "at", "target patch"}


def test_the_loss_of_the_next_token_against_its_definition():
    parts = make("text", "next_token")
    batch = ready(parts)
    assert batch.count == np.maximum(0, parts[2].all().stream.lengths - 1).sum()
    inputs, step = batch.inputs(), frozen_step_of(parts, Decoder)
    logits = step.model.readout(step.model.decode(inputs.stream))
    real, target = inputs.stream.valid, inputs.stream.columns["target ids"]
    expected = -logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
    loss, found = step(inputs, True)
    torch.testing.assert_close(step(inputs)[0], loss)
    torch.testing.assert_close(loss, expected[real].sum())
    torch.testing.assert_close(found["loss"], expected.masked_fill(~real, 0).sum(1))
    assert found["count"].tolist() == batch.stream.lengths.tolist()
    assert found["correct"].tolist() == ((logits.argmax(-1) == target) & real).sum(1).tolist()


@pytest.mark.parametrize("layout", ["packed", "padded", "full"])
def test_slots_without_a_place_point_at_the_sample_in_turn(layout):
    lengths = torch.tensor([6, 6, 6]) if layout == "full" else torch.tensor([5, 2, 0, 6, 0])
    places = torch.zeros(len(lengths), 4, dtype=torch.long)
    places[0, :2], places[1, 0] = torch.tensor([5, 2]), 2
    start = torch.arange(len(lengths)) * 6
    valid, columns = None, {"x": torch.zeros(len(lengths), 6)}
    if layout == "padded":
        valid = torch.arange(6) < lengths[:, None]
    elif layout == "packed":
        valid, columns = Ragged(lengths, total=int(lengths.sum())), {"x": torch.zeros(13)}
        start = lengths.cumsum(0) - lengths
    found = _rows(places, StreamView(columns, valid), columns["x"].numel()).view(places.shape)
    assert found[0, :2].tolist() == [4, 1]
    assert found[1, 0] == start[1] + 1
    assert int(found.max()) < columns["x"].numel()
    for row, length in enumerate(lengths.tolist()):
        free = (found[row] - start[row])[places[row] == 0]
        if length:
            assert ((free >= 0) & (free < length)).all()
            assert torch.bincount(free).max() <= -(-len(free) // length)


class Beads(Tokens):
    """Tokens that cannot be hidden."""

    tokenize = embedding = lambda self, given: given


def test_mistakes():
    tokens, _, dataset = make("patches", "masked")
    rng = SampleRandom(0, 0, np.arange(len(dataset)))
    with refuses("objective.same", 1.2, key="objective.random"):
        Masked(kind="masked", random=0.6, same=0.6).corrupt(dataset.all(), tokens, rng)
    with refuses("`word`", "patches", key="objective.whole_words", hint="objective.whole_words"):
        Masked(kind="masked", whole_words=True).corrupt(dataset.all(), tokens, rng)
    with refuses("patches", key="tokens.kind"):
        Masked(kind="masked", random=0.1).corrupt(dataset.all(), tokens, rng)
    with refuses("beads", key="tokens.kind"):
        Masked(kind="masked").corrupt(dataset.all(), {"tokens": Beads(kind="beads")}, rng)
    for objective in (Masked(kind="masked"), NextToken(kind="next_token")):
        with refuses(objective.kind, key="objective.kind"):
            objective.predict(None, None)
    with refuses("'perplexty'", key="objective.metrics", hint="'perplexity'"):
        NextToken(kind="next_token", metrics=["perplexty"]).chosen()
