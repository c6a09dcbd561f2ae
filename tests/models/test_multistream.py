"""One trunk over several streams: any stream may be missing, and neither layout nor company changes an answer."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from sciformer.data.batch import Stream
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.models.base import parameters
from sciformer.models.multistream import Multistream
from sciformer.nn import Watch
from sciformer.objectives.base import Step
from sciformer.objectives.masked import PLACES, Masked
from tests.errors import refuses
from tests.models.sections import section
from tests.objectives.examples import (
    COUNT,
    IMAGES,
    OBJECTIVES,
    TEXTS,
    TRUTH,
    Dataset,
    Memory,
    as_table,
    make_tokens,
    shaken,
)

# Samples without an image, without words (text 1 is empty), and sample 1 without both.
NO_IMAGE = np.array([1, 4])
OBJECTIVES_HERE = {
    "classify": OBJECTIVES["classify"],
    "regress": lambda: OBJECTIVES["regress"]().model_copy(update={"stream": "words"}),
    "masked": lambda: Masked(kind="masked", mask_ratio=0.4, stream="image", hide_stream=0.5),
    "every stream": lambda: Masked(kind="masked", mask_ratio=0.4, every_stream=True, hide_stream=0.5),
}
POOLS = ("auto", "max", "last", "class_token", "class_attention", "attention", "blocks")
POSITIONS = ("none", "learned", "sinusoidal", "unpaired", "fourier", "modulation")
CASES = [
    *(("classify", {"pool": pool}) for pool in POOLS),
    *(itertools.product(("regress", "every stream"), ({"position": position} for position in POSITIONS))),
    *((name, changes) for name in OBJECTIVES_HERE for changes in ({"kv_heads": 1}, {"image": {"position": "none"}})),
]


def make(objective):
    tokens = {"image": make_tokens("patches"), "words": make_tokens("text")}
    dataset = Dataset(Memory({"image": IMAGES, **as_table(TEXTS), **TRUTH}), tokens)
    made = OBJECTIVES_HERE[objective]() if isinstance(objective, str) else objective
    made = made if made.stream else made.model_copy(update={"stream": "image"}).fresh()
    made.fit(dataset)
    return tokens, made, dataset


def without(batch, stream, rows):
    """The batch without the tokens of a stream in some samples."""
    own = batch.streams[stream]
    return batch.with_columns(own.keep(~np.isin(own.sample, rows)), stream)


def ready(parts, ids=None, edit=lambda batch: batch):
    tokens, objective, dataset = parts
    ids = np.arange(COUNT) if ids is None else np.asarray(ids)
    raw = edit(without(dataset.batch(ids), "image", np.flatnonzero(np.isin(ids, NO_IMAGE))))
    return prepare(raw, tokens, objective, SampleRandom(0, 0, ids), False)


def double(inputs, junk=False):
    for view in inputs.streams.values():
        for name, column in view.columns.items():
            column = column.double() if column.is_floating_point() else column
            if junk and isinstance(view.valid, torch.Tensor) and column.dtype != torch.bool:
                column[~view.valid] = float("nan") if column.is_floating_point() and name == "patch" else 1
            view.columns[name] = column
    inputs.samples = {k: v.double() if v.is_floating_point() else v for k, v in inputs.samples.items()}
    return inputs


def build(parts, **changes):
    made = section(Multistream, kind="multistream", **{"dim": 8, "depth": 2, "heads": 2, **changes})
    return made.build(parts[0], parts[1])


@pytest.mark.parametrize(("objective", "changes"), CASES, ids=str)
def test_any_stream_may_be_missing(objective, changes):
    parts = make(objective)
    batch = ready(parts)
    assert (batch.streams["image"].lengths == 0).tolist() == np.isin(np.arange(COUNT), NO_IMAGE).tolist()
    step = Step(shaken(build(parts, **changes)).double(), parts[1])
    loss, outputs = step(double(batch.inputs()), True)
    assert loss.isfinite()
    assert all(len(value) == COUNT and value.isfinite().all() for value in outputs.values())
    (loss / batch.count).backward()
    assert not [name for name, weight in step.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert parameters(step) == sum(weight.numel() for weight in step.parameters())
    alone = [ready(parts, [i]) for i in range(COUNT)]
    assert sum(one.count for one in alone) == pytest.approx(batch.count)
    with torch.no_grad():
        torch.testing.assert_close(step(double(batch.inputs()))[0], loss)
        for inputs in (batch.inputs(packed=True), batch.inputs(multiple=16), batch.inputs(rows=9)):
            found = step(double(inputs, junk=True), True)[1]
            torch.testing.assert_close({key: value[:COUNT] for key, value in found.items()}, outputs)
        for i, one in enumerate(alone):
            found = step(double(one.inputs()), True)[1]
            torch.testing.assert_close(found, {key: value[i : i + 1] for key, value in outputs.items()})


@pytest.mark.parametrize("pool", POOLS)
def test_without_any_token_a_learned_vector_answers(pool):
    parts = make("classify")
    model = shaken(build(parts, pool=pool)).eval()
    for ids in ([1], [1, 1], [1, 2]):
        for packed in (False, True):
            pooled = model.pool(model.encode(ready(parts, ids).inputs(packed=packed).view("image")))
            assert pooled.isfinite().all()
            assert pooled[0].abs().max() > 0
            torch.testing.assert_close(pooled[0], model.pool(model.encode(ready(parts, [1]).inputs().view("image")))[0])
    assert (model.nothing is None) == (pool == "class_token")


def test_every_stream_matters_and_its_code_tells_it_from_the_others():
    parts = make("classify")
    model = shaken(build(parts)).eval()
    batch = ready(parts, [0])
    whole = model.pool(model.encode(batch.inputs().view("image")))
    for stream in ("image", "words"):
        less = without(batch, stream, np.array([0]))
        assert not torch.allclose(model.pool(model.encode(less.inputs().view("image"))), whole)
        torch.testing.assert_close(model.pool(model.encode(batch.inputs().view(stream))), whole)
        with torch.no_grad():
            model.entrance[stream].code[0] += 1
        assert not torch.allclose(model.pool(model.encode(batch.inputs().view("image"))), whole)
        with torch.no_grad():
            model.entrance[stream].code[0] -= 1


@pytest.mark.parametrize("name", ["masked", "every stream"])
def test_hidden_values_do_not_reach_the_model(name):
    parts = make(name)
    tokens, objective, _ = parts
    model = shaken(build(parts)).eval()
    clean = ready(parts)
    asked = objective.predicted_streams(tokens)

    def said(batch):
        encoded = model.encode(batch.inputs(packed=True).view("image"))
        return [model.readout[stream].predict(model.stream_tokens(encoded, stream)) for stream in asked]

    for stream in asked:
        (column,), hidden = tokens[stream].hides, clean.streams[stream].columns["hidden"]
        lengths = clean.streams[stream].lengths
        whole = np.bincount(clean.streams[stream].sample[hidden], minlength=COUNT) == lengths
        assert whole[lengths > 0].any()
        assert not whole[lengths > 0].all()

        def poison(batch, stream=stream, column=column, hidden=hidden):
            own = batch.streams[stream]
            values = own.columns[column].copy()
            values[hidden] = np.nan if values.dtype.kind == "f" else 5
            return batch.with_columns(own.with_columns(**{column: values}), stream)

        poisoned = ready(parts, edit=poison)
        np.testing.assert_array_equal(poisoned.streams[stream].columns["hidden"], hidden)
        for one, other in zip(said(poisoned), said(clean)):
            for key, expected in other.items():
                assert torch.equal(one[key], expected)


def test_whole_streams_are_hidden_as_often_as_asked_and_never_all_of_them():
    tokens, objective, _ = make(Masked(kind="masked", mask_ratio=0.01, every_stream=True, hide_stream=0.3))
    n, rng = 4000, np.random.default_rng(0)
    lengths = {"image": np.where(rng.random(n) < 0.2, 0, 40), "words": np.where(rng.random(n) < 0.2, 0, 50)}
    streams = {
        "image": Stream(
            {"patch": np.ones((lengths["image"].sum(), 8)), "at": np.zeros((lengths["image"].sum(), 2))},
            lengths["image"],
        ),
        "words": Stream({"ids": np.ones(lengths["words"].sum(), np.int32)}, lengths["words"]),
    }
    batch = replace(make("masked")[2].batch(np.arange(1)), streams=streams, samples={}, ids=np.arange(n))
    found = objective.corrupt(batch, tokens, SampleRandom(0, 0, batch.ids))
    assert found.samples[PLACES].shape[:2] == (n, 2)
    whole = {}
    for name, stream in found.streams.items():
        hidden = np.bincount(stream.sample[stream.columns["hidden"]], minlength=n)
        whole[name] = (hidden == lengths[name]) & (lengths[name] > 0)
        np.testing.assert_array_equal(hidden[~whole[name] & (lengths[name] > 0)], 1)
    both = (lengths["image"] > 0) & (lengths["words"] > 0)
    assert not any(some[~both].any() for some in whole.values())  # the only stream of a sample stays visible
    assert not (whole["image"] & whole["words"]).any()
    for some in whole.values():  # 0.3, less half of the 0.09 in which both were drawn
        assert abs(some[both].mean() - 0.255) < 0.03
    assert abs((whole["image"] | whole["words"])[both].mean() - 0.51) < 0.03


def test_attention_is_recorded_by_stream_and_sums_to_one():
    parts = make("classify")
    for pool in ("auto", "class_token", "attention"):
        model, watch = shaken(build(parts, pool=pool)).eval(), Watch()
        batch = ready(parts, [0, 3])
        view = batch.inputs().view("image")
        model.pool(model.encode(view, watch), watch)
        n = {name: one.columns[next(iter(one.columns))].shape[1] for name, one in view.streams.items()}
        first = int(pool == "class_token")
        for query, key in itertools.product(n, n):
            name = query if query == key else f"{query} to {key}"
            shape = (2, 2, first + n[query], n[key] + first * (query == key))
            assert watch.attention[f"{name}.blocks.1.attention"].shape == shape
        for query, other in (("image", "words"), ("words", "image")):
            own, rest = (watch.attention[f"{name}.blocks.0.attention"] for name in (query, f"{query} to {other}"))
            torch.testing.assert_close(own[1].sum(-1)[:, 0] + rest[1].sum(-1)[:, 0], torch.ones(2))
        if pool == "attention":
            both = [watch.attention[f"{name}.pool.attention"] for name in n]
            torch.testing.assert_close(sum(one.sum(-1) for one in both), torch.ones(2, 2, 1))
        packed = Watch()
        torch.testing.assert_close(
            model.pool(model.encode(batch.inputs(packed=True).view("image"), packed), packed),
            model.pool(model.encode(view)),
        )
        torch.testing.assert_close(
            packed.attention["image to words.blocks.0.attention"], watch.attention["image to words.blocks.0.attention"]
        )


@pytest.mark.parametrize(
    ("changes", "key", "mentions"),
    [
        ({"trunk": "gru"}, "model.trunk", ["gru"]),
        ({"window": 3}, "model.window", []),
        ({"position": "rotary"}, "model.position", ["rotary"]),
        ({"image": {"position": "relative"}}, "model.image.position", ["relative"]),
        ({"words": {"depth": 3}}, "model.words.depth", ["depth"]),
        ({"imge": {"position": "none"}}, "model.imge", ["imge"]),
        ({"compress": 3}, "model.compress", []),
    ],
)
def test_keys_that_make_no_sense(changes, key, mentions):
    with refuses(*mentions, key=key):
        build(make("classify"), **changes)


def test_one_stream_is_refused():
    parts = make("classify")
    with refuses("one", key="tokens"):
        Multistream(kind="multistream", dim=8, heads=2).build({"image": parts[0]["image"]}, parts[1])
    batch = parts[2].batch(np.arange(2)).only("image")
    with refuses(key="objective.hide_stream"):
        Masked(kind="masked", hide_stream=0.2).corrupt(batch, parts[0], SampleRandom(0, 0, batch.ids))


def test_streams_are_dropped_in_training_as_often_as_asked_and_never_all_of_them():
    objective = OBJECTIVES["classify"]().model_copy(update={"drop_stream": 0.3, "stream": "image"}).fresh()
    tokens, objective, dataset = make(objective)
    ids = np.tile(np.arange(COUNT), 500)
    batch = without(dataset.batch(ids), "image", np.flatnonzero(np.isin(ids, NO_IMAGE)))
    rng = SampleRandom(0, 0, np.arange(len(ids)))
    assert objective.augment(batch, tokens, rng, False) is batch
    found = objective.augment(batch, tokens, rng, True)
    had, has = (np.stack([one.streams[name].lengths > 0 for name in ("image", "words")]) for one in (batch, found))
    assert not (has & ~had).any()
    np.testing.assert_array_equal(has.any(0), had.any(0))  # nobody loses everything
    lone = had.sum(0) == 1
    np.testing.assert_array_equal(has[:, lone], had[:, lone])
    for some in (has & had)[:, had.all(0)]:  # 0.3, less half of the 0.09 in which both were drawn
        assert abs(some.mean() - 0.745) < 0.03
    whole = found.streams["image"].lengths
    np.testing.assert_array_equal(whole[has[0]], batch.streams["image"].lengths[has[0]])  # all tokens or none
    with refuses(key="objective.drop_stream"):
        objective.augment(batch.only("image"), tokens, rng, True)
