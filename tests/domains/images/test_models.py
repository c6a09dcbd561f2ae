"""Models of images: their published sizes, and what each makes of images of any shape."""

import numpy as np
import pytest
import torch

from sciformer.data.batch import Batch
from sciformer.data.columns import Lists
from sciformer.data.dataset import Dataset
from sciformer.data.source import Memory
from sciformer.domains.images.tokens import Patches
from sciformer.models.base import parameters
from sciformer.models.decoder import Decoder
from sciformer.models.encoder import Encoder
from sciformer.models.masked_autoencoder import MaskedAutoencoder
from sciformer.objectives.base import Objective, Step
from sciformer.objectives.classify import Classify
from sciformer.recipe import Recipe
from tests.domains.images.test_tokens import fitted
from tests.errors import refuses
from tests.models.sections import section
from tests.objectives.examples import make, ready, shaken

# As timm and torchvision have them, less the position of the class token, which is part of that token here.
COUNTS = {
    "vit-tiny": 5_717_416 - 192,
    "vit-small": 22_050_664 - 384,
    "vit-base": 86_567_656 - 768,
    "vit-large": 304_326_632 - 1024,
    "vit-huge": 632_045_800 - 1280,
    "resnet-18": 11_689_512,
    "resnet-50": 25_557_032,
}
MODELS = {
    "vit": ({}, {}),
    "vit with a class token": ({}, {"pool": "class_token"}),
    "linformer": ({}, {"compress": 3, "pool": "class_token"}),
    "sinusoidal": ({}, {"position": "sinusoidal"}),
    "convolution": ({}, {"trunk": "convolution"}),
    "residual stem": ({"embed": "residual"}, {}),
    "resnet2d": ({"embed": "none"}, {"trunk": "resnet2d", "stages": [1, 2], "dim": 6}),
    "bottleneck": ({"embed": "none"}, {"trunk": "resnet2d", "stages": [1, 1], "dim": 4, "bottleneck": True}),
    "autoencoder": ({}, {"kind": "masked_autoencoder", "pool": "class_token"}),
}
SHAPES = [(8, 12), (4, 4), (12, 8), (8, 8)]


def build(name, tokens, objective):
    values = {"kind": "encoder", "dim": 8, "depth": 2, "heads": 2, **MODELS[name][1]}
    kind = MaskedAutoencoder if values["kind"] == "masked_autoencoder" else Encoder
    return shaken(section(kind, **values).build({"tokens": tokens}, objective)).double().eval()


def pictures(shapes):
    rng, shapes = np.random.default_rng(0), np.array(shapes)
    values = rng.normal(size=(int(shapes.prod(1).sum()), 2)).astype(np.float32)
    return {"image": Lists(values, shapes.prod(1)), "image_shape": shapes.astype(np.int32)}


def pooled(model, tokens, table, **layout):
    view = Batch({"tokens": tokens.normalise(tokens.tokenize(table))}).inputs(**layout).stream
    view.columns |= {key: column.double() for key, column in view.columns.items() if column.is_floating_point()}
    return model.pool(model.encode(view))


@pytest.mark.parametrize("name", COUNTS)
def test_published_sizes(name):
    recipe = Recipe.load(f"images/{name}")
    tokens, objective = recipe.tokens.fresh(), recipe.objective.fresh()
    tokens.state.update(shape=[224, 224, 3], mean=[0.0] * 3, deviation=[1.0] * 3)
    objective.state.update(classes=[str(i) for i in range(1000)], counts=[1] * 1000)
    with torch.device("meta"):
        built = recipe.model.build({"tokens": tokens}, objective)
    assert parameters(built) == COUNTS[name]


@pytest.mark.parametrize("name", MODELS)
def test_images_of_any_shape_are_the_same_alone_and_in_company(name):
    tokens = fitted(pictures(SHAPES), patch=2, **MODELS[name][0])
    model = build(name, tokens, Objective())
    together = pooled(model, tokens, pictures(SHAPES))
    assert together.isfinite().all()
    for layout in ({"packed": True}, {"multiple": 16}, {"rows": 6, "width": 40}):
        torch.testing.assert_close(pooled(model, tokens, pictures(SHAPES), **layout)[:4], together)
    whole, ends = pictures(SHAPES)["image"].values, np.cumsum([h * w for h, w in SHAPES])
    for i, (height, width) in enumerate(SHAPES):
        image = whole[ends[i] - height * width : ends[i]].reshape(1, height, width, 2)
        torch.testing.assert_close(pooled(model, tokens, {"image": image}), together[i : i + 1])


@pytest.mark.parametrize("name", MODELS)
def test_another_size_than_it_was_made_for(name):
    rng = np.random.default_rng(0)
    tokens = fitted(rng.normal(size=(4, 8, 8, 2)), patch=2, **MODELS[name][0])
    model = build(name, tokens, Objective())
    for shape in ((8, 8), (12, 20), (6, 4), (7, 9)):
        table = {"image": rng.normal(size=(3, *shape, 2))}
        found = pooled(model, tokens, table)
        torch.testing.assert_close(pooled(model, tokens, table, packed=True), found)
        assert found.isfinite().all()


@pytest.mark.parametrize("name", [name for name in MODELS if name != "autoencoder"])
@pytest.mark.parametrize("objective", ["classify", "regress", "masked"])
def test_every_objective_trains_all_weights(name, objective):
    parts = make("patches", objective)
    tokens = parts[0]["tokens"].model_copy(update=MODELS[name][0])
    tokens.state.update(parts[0]["tokens"].state)
    parts = ({"tokens": tokens}, *parts[1:])
    batch = ready(parts)
    step = Step(build(name, tokens, parts[1]).float().train(), parts[1])
    loss, _ = step(batch.inputs(), True)
    assert loss.isfinite()
    (loss / batch.count).backward()
    assert not [key for key, weight in step.named_parameters() if weight.grad is None or not weight.grad.any()]
    step.eval()
    expected = step(batch.inputs(), True)[1]
    for inputs in (batch.inputs(packed=True), batch.inputs(rows=9, width=8)):
        for key, value in step(inputs, True)[1].items():
            torch.testing.assert_close(value[:7], expected[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("embed", ["linear", "convolution"])
def test_places_begin_as_loud_as_patches(embed):
    def made(tokens, **keys):
        return Encoder(kind="encoder", dim=64, depth=1, heads=2, **keys).build({"tokens": tokens}, Objective())

    table = pictures([(8, 12)] * 50)
    tokens = fitted(table, patch=4, embed=embed)
    model = made(tokens)
    view = Batch({"tokens": tokens.normalise(tokens.tokenize(table))}).inputs().stream
    assert 0.5 < model.trunk.position.table.std() / model.embed(view).std() < 2
    lattice = tokens.model_copy(update={"periodic": True})
    lattice.state.update(tokens.state)
    assert made(lattice).trunk.position.table.std() < 0.03
    assert 0.09 < made(tokens, position="learned", position_scale=0.1).trunk.position.table.std() < 0.11


def test_where_a_patch_stands_is_soon_learned():
    label = np.tile(np.arange(16), 8)
    image = np.kron(np.eye(16)[label].reshape(-1, 4, 4), np.ones((2, 2)))
    tokens, objective = {"tokens": fitted(image, patch=2)}, Classify(kind="classify")
    dataset = Dataset(Memory({"image": image, "label": label}), tokens)
    objective.fit(dataset)
    torch.manual_seed(0)
    made = Encoder(kind="encoder", dim=32, depth=2, heads=4, pool="class_token", dropout=0.0)
    model = made.build(tokens, objective)
    inputs, step = ready((tokens, objective, dataset)).inputs(), Step(model, objective)
    optimizer = torch.optim.AdamW(step.parameters(), lr=3e-3)
    for _ in range(100):
        optimizer.zero_grad()
        step(inputs, False)[0].div(len(label)).backward()
        optimizer.step()
    found = step(inputs, True)[1]
    assert (found["probabilities"].argmax(1) == found["label"]).float().mean() > 0.8


def test_mistakes_are_answered():
    tokens, objective, _ = make("patches", "classify")
    with refuses("resnet2d", key="tokens.embed", hint="tokens.embed: none"):
        Encoder(kind="encoder", trunk="resnet2d").build(tokens, objective)
    with refuses("resnet2d", "tokens.kind: text", key="model.trunk"):
        Encoder(kind="encoder", trunk="resnet2d").build(*make("text", "classify")[:2])
    raw, later = Patches(kind="patches", patch=2, embed="none"), make("patches", "next_token")[1]
    raw.state.update(tokens["tokens"].state)
    with refuses("resnet2d", key="model.trunk"):
        Decoder(kind="decoder", trunk="resnet2d", dim=8).build({"tokens": raw}, later)
    with refuses(128, "transformer", key="model.trunk", hint="resnet2d"):
        Encoder(kind="encoder").build({"tokens": raw}, objective)
    for side, wrong, mentions in (
        (2, {"stages": [1, 1, 1], "widths": [4, 4]}, ("3 stages", "2 widths")),
        (3, {}, (32, 3)),
    ):
        raw = fitted(np.ones((1, 6, 6)), patch=side, embed="none")
        with refuses(*mentions):
            Encoder(kind="encoder", trunk="resnet2d", **wrong).build({"tokens": raw}, objective)
