"""Every model with every objective on two domains: finite, trained to the last weight, blind to layout and company."""

import functools
import itertools

import numpy as np
import pytest
import torch

from sciformer.models.base import parameters
from sciformer.models.decoder import Decoder
from sciformer.models.encoder import Encoder
from sciformer.objectives.base import Step
from tests.errors import refuses
from tests.models.sections import section
from tests.objectives.examples import double, make, ready, shaken

DOMAINS = ("text", "patches")
TRUNKS = ("transformer", "rnn", "gru", "lstm", "convolution")
RECURRENT = TRUNKS[1:4]
POOLS = ("auto", "mean", "max", "last", "class_token", "class_attention", "attention")
POSITIONS = ("none", "learned", "sinusoidal", "unpaired", "rotary", "fourier", "modulation", "relative")
ASKED = ("classify", "regress", "masked")


def combinations():
    for domain in DOMAINS:
        for trunk, pool, objective in itertools.product(TRUNKS, POOLS, ASKED):
            if trunk == "transformer" or pool != "class_token":
                yield domain, objective, Encoder, {"trunk": trunk, "pool": pool}
        for trunk, objective in itertools.product(RECURRENT, ASKED):
            yield domain, objective, Encoder, {"trunk": trunk, "bidirectional": False}
        for position, (objective, pool) in itertools.product(
            POSITIONS, [("masked", "auto"), ("regress", "class_token")]
        ):
            yield domain, objective, Encoder, {"position": position, "pool": pool}
        for position in ("learned", "sinusoidal", "fourier"):
            yield domain, "classify", Encoder, {"position": position, "trunk": "convolution"}
            yield domain, "classify", Encoder, {"position": position, "trunk": "gru"}
        for trunk in TRUNKS[:4]:
            yield domain, "next_token", Decoder, {"trunk": trunk}
        for position in POSITIONS:
            yield domain, "next_token", Decoder, {"position": position}
        for changes in (
            {"window": 2},
            {"kv_heads": 1, "norm": "rms", "activation": "swiglu", "bias": False, "qk_norm": "rms"},
            {"norm_position": "post", "depth": 1},
            {"norm_position": "post", "embedding_norm": True, "readout_layer": True, "norm_epsilon": 1e-9},
            {"head_dim": 3, "kv_heads": 1, "activation": "gelu_tanh"},
            {"residual": False, "norm_position": "post", "activation": "tanh"},
            {"position": "rotary", "periods": (0.5, 50), "head_dim": 8, "rotary_share": 0.5, "rotary_values": True},
            {"depth": 0},
            {"attention": "factored", "position": "relative"},
        ):
            yield domain, "next_token", Decoder, changes
            yield domain, "classify", Encoder, changes
        yield domain, "regress", Encoder, {"pool": "first"}
        for trunk, pool in itertools.product(("transformer", "gru", "convolution"), ("blocks", "lstm", "gru")):
            yield domain, "classify", Encoder, {"trunk": trunk, "pool": pool}
        yield domain, "masked", Encoder, {"pool": "blocks", "readout_norm": True}
        yield domain, "masked", Encoder, {"pool": "lstm"}
        yield domain, "classify", Encoder, {"pool": "blocks", "norm_position": "post", "residual": False}


COMBINATIONS = list(combinations())


def name_of(case):
    domain, objective, model, changes = case
    return "-".join([domain, objective, model.__name__.lower(), *(f"{key}={value}" for key, value in changes.items())])


@functools.cache
def data(domain, objective):
    parts = make(domain, objective)
    batch = ready(parts)
    alone = {i: ready(parts, [i]) for i in (0, 1, 2, 6)}
    return parts, batch, alone


def close(found, expected):
    assert found.keys() == expected.keys()
    for key in expected:
        torch.testing.assert_close(found[key].double(), expected[key].double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", COMBINATIONS, ids=name_of)
def test_combination(case):
    domain, objective, model, changes = case
    parts, batch, alone = data(domain, objective)
    made = section(model, kind=model.__name__.lower(), **{"dim": 8, "depth": 2, "heads": 2, **changes})
    built = shaken(made.build(parts[0], parts[1])).double()
    step = Step(built, parts[1])
    loss, outputs = step(double(batch.inputs()), True)
    assert loss.isfinite()
    assert all(value.isfinite().all() for value in outputs.values())
    assert all(len(value) == len(batch) for value in outputs.values())
    (loss / batch.count).backward()
    still = [name for name, weight in step.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not still  # no exceptions: one process may not wait for a gradient that never comes
    assert parameters(built) == sum(weight.numel() for weight in built.parameters()) > 0
    with torch.no_grad():
        torch.testing.assert_close(step(double(batch.inputs()))[0], loss)
        for inputs in (batch.inputs(packed=True), batch.inputs(multiple=1 if domain == "patches" else 16)):
            close(step(double(inputs, junk=True), True)[1], outputs)
        for i, one in alone.items():
            close(step(double(one.inputs()), True)[1], {key: value[i : i + 1] for key, value in outputs.items()})


def test_no_combination_is_missing_or_there_twice():
    assert len(COMBINATIONS) == len({name_of(case) for case in COMBINATIONS}) == 334


@pytest.mark.parametrize("objective", ["classify", "regress", "masked", "next_token"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_micro_batches_add_up(domain, objective):
    parts, batch, _ = data(domain, objective)
    model = Decoder if objective == "next_token" else Encoder
    step = Step(shaken(model(kind="m", dim=8, depth=1, heads=2).build(parts[0], parts[1])).double(), parts[1])
    whole, _ = step(double(batch.inputs()))
    gradient = torch.autograd.grad(whole, list(step.parameters()))
    for rows in ([[0, 1, 2], [3], [4, 5, 6]], [[i] for i in range(7)]):
        micro = [ready(parts, part) for part in rows]
        losses = [step(double(one.inputs()))[0] for one in micro]
        torch.testing.assert_close(sum(losses), whole)
        assert abs(sum(one.count for one in micro) - batch.count) < 1e-5
        assert torch.stack(losses).isfinite().all()
        for one, other in zip(torch.autograd.grad(sum(losses), list(step.parameters())), gradient):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("objective", ["classify", "regress", "masked", "next_token"])
def test_batches_of_nothing(objective):
    parts, _, _ = data("text", objective)
    model = Decoder if objective == "next_token" else Encoder
    for trunk in ("transformer", "gru") if objective == "next_token" else TRUNKS:
        for pool in ("auto",) if model is Decoder else ("auto", "class_token", "class_attention"):
            if trunk != "transformer" and pool == "class_token":
                continue
            more = {} if model is Decoder else {"pool": pool}
            step = Step(
                section(model, kind="m", trunk=trunk, dim=8, depth=1, heads=2, **more).build(parts[0], parts[1]),
                parts[1],
            )
            for ids in ([1], [1, 1], [1, 2], []):
                batch = ready(parts, np.array(ids, int))
                for packed in (False, True):
                    loss, outputs = step(batch.inputs(packed=packed), True)
                    assert loss.isfinite()
                    assert all(len(value) == len(ids) and value.isfinite().all() for value in outputs.values())
                    assert step(batch.inputs(packed=packed))[0].isfinite()


@pytest.mark.parametrize(
    ("model", "options", "domain", "objective", "key", "mentions"),
    [
        (Decoder, {"trunk": "convolution"}, "text", "next_token", "model.trunk", ["convolution"]),
        (Decoder, {"trunk": "conformer"}, "text", "next_token", "model.trunk", ["conformer"]),
        (Encoder, {"trunk": "deep_sets", "pool": "blocks"}, "text", "classify", "model.pool", ["blocks"]),
        (Encoder, {"position": "rotary", "periods": (9, 1)}, "text", "classify", None, ["periods", "9 and 1"]),
        (Decoder, {}, "text", "classify", "model.kind", ["encode", "classify", "model.kind: m"]),
        (Decoder, {}, "text", "masked", "model.kind", ["encode", "masked"]),
        (Encoder, {}, "text", "next_token", "model.kind", ["decode", "next_token", "model.kind: m"]),
        (Encoder, {"trunk": "convolution", "pool": "class_token"}, "text", "classify", "model.pool", ["class_token"]),
        (Encoder, {"trunk": "gru", "pool": "class_token"}, "text", "classify", "model.pool", ["class_token"]),
        (Encoder, {"trunk": "gru", "position": "rotary"}, "text", "classify", "model.position", ["rotary"]),
        (Encoder, {"trunk": "convolution", "position": "relative"}, "text", "classify", "model.position", ["relative"]),
        (Encoder, {"trunk": "gru", "dim": 7}, "text", "classify", None, [7]),
        (Encoder, {"trunk": "convolution", "kernel": 2}, "text", "classify", None, ["kernel", 2]),
        (Encoder, {"heads": 3}, "text", "classify", "model.heads", ["model.dim", 8, 3]),
        (Encoder, {"heads": 3, "trunk": "gru", "pool": "attention"}, "text", "classify", None, ["width 8", "3 heads"]),
        (Encoder, {"heads": 8, "position": "rotary"}, "text", "classify", None, ["head_dim", 2, 1]),
        (Encoder, {"heads": 4, "position": "rotary"}, "patches", "classify", None, ["head_dim", 4, 2]),
        (Encoder, {"kv_heads": 3}, "text", "classify", None, ["kv_heads", 2, 3]),
    ],
)
def test_what_makes_no_sense(model, options, domain, objective, key, mentions):
    parts, _, _ = data(domain, objective)
    with refuses(*mentions, key=key):
        section(model, kind="m", **{"dim": 8, "depth": 1, "heads": 2, **options}).build(parts[0], parts[1])


def test_a_longer_text_than_the_places():
    parts = make("text", "classify")
    built = Encoder(kind="encoder", dim=8, depth=1, heads=2).build(parts[0], parts[1])
    view = ready(parts, [3, 3]).inputs().stream
    view.columns = {name: torch.cat([column, column], 1) for name, column in view.columns.items()}
    with refuses(16, 24):
        built.encode(view)
