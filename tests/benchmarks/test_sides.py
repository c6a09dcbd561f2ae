"""Both sides of a comparison of speed are one network, with the same features and weights, and learn."""

from types import SimpleNamespace

import pytest
import torch

import images_sides
import jets_loading
import jets_sides
from sciformer.assembly import Assembly
from sciformer.data.batch import StreamView
from sciformer.domains.jets.interop.data_config import translate_options
from sciformer.objectives.base import Step
from tests.domains.images.interop.test_timm import CLASSES, DEPTH, DIM, HEADS, weights


def learns(side, weight):
    before = weight.detach().clone()
    side.train(2)
    assert not torch.equal(before, weight)


def test_images_with_the_weights_of_timm():
    sizes = {"side": 8, "patch": 4, "dim": DIM, "depth": DEPTH, "heads": HEADS, "classes": CLASSES}
    theirs = SimpleNamespace(state_dict=lambda: weights(inner=4 * DIM))
    ours = images_sides.Ours(theirs, sizes, "cpu", [images_sides.images(4, sizes, seed) for seed in range(2)], {})
    ours.settle()
    learns(ours, ours.step.model.trunk.blocks[0].mlp.up.weight)


def test_images_with_timm():
    pytest.importorskip("timm")
    sizes = images_sides.TINY
    batches = [images_sides.images(4, sizes, seed) for seed in range(2)]
    torch.manual_seed(0)
    model = images_sides.timm(sizes)
    ours = images_sides.Ours(model, sizes, "cpu", batches, {})
    theirs = images_sides.Timm(model, "cpu", batches, None)
    assert images_sides.difference(theirs, ours, torch.float64, "cpu") < 1e-6
    theirs.train(1)


def test_jets_with_the_official_network():
    pytest.importorskip("weaver")
    batches = [jets_sides.jets(4, seed) for seed in range(2)]
    torch.manual_seed(0)
    model = jets_sides.official(jets_sides.TINY)
    ours, theirs = jets_sides.Ours(model, "cpu", batches, {}), jets_sides.Official(model, "cpu", batches)
    assert jets_sides.difference(theirs, ours, torch.float64, "cpu") < 1e-6
    learns(ours, ours.step.model.trunk.blocks[0].mlp.up.weight)
    learns(theirs, theirs.model.blocks[0].fc1.weight)
    for side in (ours, theirs):
        side.infer(1)


def test_jets_are_read_with_the_same_features():
    made = translate_options(jets_loading.description())
    assert (made.notes, made.tokens["features"]) == ([], "full")
    assert list(made.data["classes"]) == list(jets_loading.CLASSES)


def test_text_with_nanogpt():
    pytest.importorskip("transformers")
    import nanogpt
    import sides

    sizes = (66, 16, 32, 2, 4)
    path, ids = sides.text(2000, 64)
    assembly = Assembly.open(sides.recipe_of(path, sizes, 2, "cpu", {}))
    ours, theirs = Step(assembly.network(), assembly.objective), nanogpt.GPT(*sizes)
    assert sum(w.numel() for w in ours.parameters()) == sum(w.numel() for w in theirs.parameters())
    names = {
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
        "attention_norm": "ln_1",
        "mlp_norm": "ln_2",
    }
    given = dict(theirs.named_parameters())
    pairs = {"trunk.position.table": "wpe.weight", "entrance.embedding.table.weight": "wte.weight"}
    pairs |= {"trunk.norm.weight": "ln_f.weight"}
    pairs |= {f"trunk.blocks.{i}.{a}.weight": f"h.{i}.{b}.weight" for i in range(2) for a, b in names.items()}
    own = dict(ours.model.named_parameters())
    assert sorted(own) == sorted(pairs)
    with torch.no_grad():
        for name, other in pairs.items():
            own[name].copy_(given[other])
    x, y = nanogpt.batches(ids, 16, 2, "cpu")()
    hidden = ours.model.decode(StreamView({"ids": x}, None)).flatten(0, 1)
    found = ours.model.readout.total(hidden, {"ids": y.flatten()}) / y.numel()
    torch.testing.assert_close(found, theirs(x, y)[1])
