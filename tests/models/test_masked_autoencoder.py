"""The masked autoencoder: hidden tokens are left out, do not leak, and are found in every layout and domain."""

import functools

import numpy as np
import pytest
import torch

from sciformer.data.batch import Batch
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.domains.jets.tokens import Particles
from sciformer.domains.lightcurves.tokens import Observations
from sciformer.evaluation.embed import embed
from sciformer.models.encoder import Encoder, EncoderNetwork
from sciformer.models.masked_autoencoder import MaskedAutoencoder
from sciformer.nn import Watch
from sciformer.objectives.base import Step
from sciformer.objectives.masked import Masked
from sciformer.recipe import Recipe
from sciformer.run import train
from sciformer.training.weights import named_tensors
from tests.domains.jets.jets_table import jets
from tests.domains.lightcurves.curves_table import curves
from tests.errors import refuses
from tests.models.sections import section
from tests.objectives.examples import double, make, ready, shaken

SIZE = {"dim": 8, "depth": 2, "heads": 2, "decoder_depth": 1}
DOMAINS = ("text", "patches", "particles", "observations")


@functools.cache
def example(domain, share=0.75):
    """Tokens, objective and a batch of a domain, hidden and normalised."""
    objective = Masked(kind="masked", mask_ratio=share)
    if domain in ("text", "patches"):
        parts = make(domain, objective)
        return parts[0]["tokens"], objective, ready(parts)
    lengths = np.array([6, 1, 9, 3, 0, 4])
    if domain == "particles":
        tokens, table = Particles(kind="particles", max_tokens=12, widths=[8], pair_widths=[8]), jets(lengths)
    else:
        tokens, table = Observations(kind="observations", window=12), curves(lengths)
    tokens.fit([table])
    raw = Batch({"tokens": tokens.tokenize(table)}, ids=np.arange(len(lengths)))
    return tokens, objective, prepare(raw, {"tokens": tokens}, objective, SampleRandom(0, 0, raw.ids), training=False)


def build(domain, pool="auto", **changes):
    tokens, objective, batch = example(domain)
    wide = {} if domain == "text" else {"decoder_dim": 12}
    section = MaskedAutoencoder(kind="masked_autoencoder", **{**SIZE, **wide, "pool": pool, **changes})
    return shaken(section.build({"tokens": tokens}, objective)).eval(), objective, batch


@pytest.mark.parametrize("pool", ["mean", "class_token"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_layouts_agree_and_everything_learns(domain, pool):
    model, objective, batch = build(domain, pool)
    step = Step(model, objective).double()
    views = [batch.inputs(), batch.inputs(packed=True), batch.inputs(multiple=16), batch.inputs(rows=9, width=16)]
    found = [step(double(inputs), True) for inputs in views]
    for loss, outputs in found[1:]:
        torch.testing.assert_close(loss, found[0][0], rtol=1e-6, atol=1e-8)
        for key, value in outputs.items():
            torch.testing.assert_close(value[: len(batch)], found[0][1][key], rtol=1e-6, atol=1e-8)
    found[0][0].backward()
    still = [name for name, weight in step.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not still
    with torch.no_grad():
        torch.testing.assert_close(step(views[0])[0], found[0][0].detach())


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_trunk_sees_visible_tokens_alone(domain):
    model, _, batch = build(domain)
    sizes = []
    model.trunk.blocks[0].register_forward_hook(lambda block, given, out: sizes.append(out.shape[1]))
    visible = ~batch.stream.columns["hidden"].astype(bool)
    counts = np.bincount(batch.stream.sample[visible], minlength=len(batch))
    model.encode(batch.inputs().stream)
    model.encode(batch.inputs(packed=True).stream)
    assert sizes == [counts.max(), counts.sum()]
    if domain == "patches":
        assert counts.tolist() == [2] * 7


@pytest.mark.parametrize("domain", DOMAINS)
def test_nothing_of_hidden_tokens_reaches_the_answer(domain):
    model, _, batch = build(domain, "class_token")
    for packed in (False, True):
        view = batch.inputs(packed=packed).stream
        expected = model.tokens(model.encode(view))
        hidden = view.columns["hidden"].bool()
        poisoned = {
            name: column.masked_fill(hidden.view(*hidden.shape, *[1] * (column.dim() - hidden.dim())), torch.nan)
            for name, column in view.columns.items()
            if column.is_floating_point() and name not in ("at", "features")
        }
        assert poisoned or domain == "text"
        for name in [name for name in view.columns if name.startswith("target ")]:
            view.columns.pop(name)
        if domain == "text":
            poisoned["ids"] = torch.where(hidden, 1, view.columns["ids"])
        view.columns |= {name: column for name, column in poisoned.items() if name in view.columns}
        assert torch.equal(model.tokens(model.encode(view)), expected)


@pytest.mark.parametrize("pool", ["mean", "class_token"])
def test_an_unhidden_sample_is_encoded_as_an_encoder_does(pool):
    model, _, _ = build("patches", pool)
    tokens, objective, dataset = make("patches", "classify")
    own = Encoder(kind="encoder", dim=8, depth=2, heads=2, pool=pool).build(tokens, objective).eval()
    ours = named_tensors(model)
    for name, weight in named_tensors(own).items():
        if not name.startswith("heads"):
            weight.data.copy_(ours[name].data)
    view = ready((tokens, objective, dataset)).inputs().stream
    torch.testing.assert_close(model.pool(model.encode(view)), own.pool(own.encode(view)))
    torch.testing.assert_close(model.tokens(model.encode(view)), own.tokens(own.encode(view)))
    only = {name.partition(".")[0] for name in ours.keys() - named_tensors(own).keys()}
    assert only == {"mask_decoder", "readout"}


def test_without_hiding_it_is_an_encoder():
    tokens, objective, _ = make("patches", "classify")
    model = MaskedAutoencoder(kind="masked_autoencoder", **SIZE).build(tokens, objective)
    assert type(model) is EncoderNetwork
    assert not hasattr(model, "mask_decoder")


@pytest.mark.parametrize("pool", ["mean", "class_token"])
def test_watching_spreads_over_all_tokens(pool):
    model, _, batch = build("patches", pool)
    watch, view, front = Watch(), batch.inputs().stream, int(pool == "class_token")
    model.encode(view, watch)
    weights = watch.attention["blocks.1.attention"]
    assert weights.shape == (7, 2, 8 + front, 8 + front)
    rows = weights.sum(-1)[:, :, front:]
    visible = ~view.columns["hidden"].bool()[:, None].expand_as(rows)
    torch.testing.assert_close(rows, visible.float())
    assert watch.hidden["blocks.0"].shape == (7, 8 + front, 8)


def test_a_compiled_step_is_one_graph_and_gives_the_same():
    model, objective, batch = build("patches", "class_token")
    step, inputs = Step(model, objective), batch.inputs()
    fast = torch.compile(step, backend="eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(fast(inputs)[0], step(inputs)[0])
    view = batch.inputs(packed=True, width=64).stream
    seen = torch.compile(model.select_visible, backend="eager", fullgraph=True, dynamic=False)(view)
    expected = model.select_visible(view)
    count = expected.view.valid.total
    assert count < seen.view.valid.total == 20 < 64
    torch.testing.assert_close(seen.view.columns["at"][:count], expected.view.columns["at"])
    assert seen.view.valid.lengths.tolist() == expected.view.valid.lengths.tolist()


def test_all_and_one_hidden():
    for share in (1.0, 0.01):
        tokens, objective, batch = example("patches", share)
        section = MaskedAutoencoder(kind="masked_autoencoder", **SIZE)
        step = Step(section.build({"tokens": tokens}, objective), objective)
        for inputs in (batch.inputs(), batch.inputs(packed=True)):
            assert step(inputs)[0].isfinite()


def test_an_encoder_begins_with_its_weights(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "images.npz", image=rng.normal(size=(40, 8, 8)), label=np.arange(40) % 2)
    common = {
        "data": {"kind": "arrays", "files": [str(tmp_path / "images.npz")]},
        "train": {"steps": 2, "batch": 8, "device": "cpu"},
    }
    model = {"kind": "masked_autoencoder", **SIZE, "decoder_dim": 4, "pool": "class_token", "position": "sinusoidal"}
    parts = {
        "tokens": {"kind": "patches", "patch": 2},
        "model": model,
        "objective": {"kind": "masked", "mask_ratio": 0.75},
    }
    first = train(Recipe.from_dict({**common, **parts}), tmp_path / "mae", show=False, report=False)
    body = named_tensors(first.model)
    for pool, frozen in (("mean", True), ("class_token", False)):
        settings = {**common["train"], "init_from": str(tmp_path / "mae"), "freeze": frozen}
        parts = {"tokens": {"kind": "patches"}, "model": {"kind": "encoder", "pool": pool}}
        recipe = Recipe.from_dict({**common, **parts, "objective": {"kind": "classify"}, "train": settings})
        run = train(recipe, tmp_path / pool, show=False, report=False)
        assert (run.recipe.model.dim, run.recipe.model.position, run.recipe.tokens.patch) == (8, "sinusoidal", 2)
        own = named_tensors(run.model)
        taken = [name for name in own if not name.startswith(("heads", "pooling"))]
        assert taken
        assert set(taken) <= set(body)
        if frozen:
            assert all(torch.equal(own[name], body[name]) for name in taken)
    assert embed(first, {"image": rng.normal(size=(3, 8, 8))}).vectors.shape == (3, 8)


def test_mistakes_are_answered():
    tokens, objective, _ = example("text")
    with refuses(8, 6, key="model.decoder_dim"):
        MaskedAutoencoder(kind="m", **SIZE, decoder_dim=6).build({"tokens": tokens}, objective)
    with refuses("gru", "transformer", key="model.trunk"):
        section(MaskedAutoencoder, kind="m", trunk="gru", **SIZE).build({"tokens": tokens}, objective)
