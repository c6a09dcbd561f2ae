"""The rivals of the transformer: their published sizes, every objective and layout with each, and their steps."""

import importlib.resources
from itertools import pairwise

import numpy as np
import pytest
import torch
import yaml

from sciformer.data.dataset import Dataset
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.data.source import Memory
from sciformer.domains.jets.tokens import Particles
from sciformer.models.base import parameters
from sciformer.models.decoder import Decoder
from sciformer.models.encoder import Encoder
from sciformer.objectives.base import Step
from sciformer.objectives.classify import Classify
from sciformer.recipe.registry import find, names
from tests.domains.jets.jets_table import jets
from tests.errors import refuses
from tests.objectives.examples import learn, make, ready, shaken

WIDE_TRUNKS = [name for name in names("trunk") if not find("trunk", name).keeps_width and name != "resnet2d"]
COUNTS = {"pfn": 86_154, "pcnn": 354_540, "particlenet": 370_156, "pct": 174_538, "lorentznet": 229_192}
LENGTHS = (6, 1, 19, 3, 14, 30, 2, 9)
CLASSES = ["H4q", "Hbb", "Hcc", "Hgg", "Hqql", "QCD", "Tbl", "Tbqq", "Wqq", "Zqq"]


def shipped(name):
    """Tokens, model and objective of a recipe, with the ten classes."""
    text = (importlib.resources.files("sciformer.domains.jets") / "recipes" / f"{name}.yaml").read_text()
    sections = {key: section for key, section in yaml.safe_load(text).items() if key not in ("about", "data", "train")}
    made = {key: find(key, section["kind"]).model_validate(section) for key, section in sections.items()}
    made["objective"].state.update(classes=CLASSES, counts=[1] * 10)
    return made["tokens"], made["model"], made["objective"]


def batch_of(tokens, objective, lengths=LENGTHS):
    table = {**jets(lengths), "label": np.array(CLASSES)[np.arange(len(lengths)) % 10]}
    named = {"tokens": tokens}
    dataset = Dataset(Memory(table), named)
    ids = np.arange(len(lengths))
    return prepare(dataset.batch(ids), named, objective, SampleRandom(0, 0, ids), training=False)


@pytest.mark.parametrize("name", COUNTS)
def test_published_sizes(name):
    tokens, model, objective = shipped(name)
    with torch.device("meta"):
        built = model.build({"tokens": tokens}, objective)
    assert parameters(built) == COUNTS[name]


@pytest.mark.parametrize("name", COUNTS)
def test_layouts_agree_and_a_step_learns(name):
    tokens, model, objective = shipped(name)
    widths = getattr(model, "widths", [])
    small = {"widths": [8, 8, 12][: len(widths)]} if widths else {}
    model = model.model_copy(update={**small, "dim": 12, "depth": 2})
    torch.manual_seed(0)
    step = Step(shaken(model.build({"tokens": tokens}, objective)), objective)
    batch = batch_of(tokens, objective)
    step.eval()
    with torch.no_grad():
        expected = step(batch.inputs(), True)[1]["probabilities"]
        for inputs in (batch.inputs(packed=True), batch.inputs(multiple=16), batch.inputs(rows=11, width=40)):
            torch.testing.assert_close(step(inputs, True)[1]["probabilities"][:8], expected, rtol=1e-4, atol=1e-5)
        one = batch.take(np.array([1]))
        torch.testing.assert_close(step(one.inputs(), True)[1]["probabilities"], expected[1:2], rtol=1e-4, atol=1e-5)
    losses = learn(step.train(), lambda: step(batch.inputs(packed=True))[0], 30, 3e-3)
    assert losses[-1] < 0.8 * losses[0]
    assert all(weight.grad.isfinite().all() for weight in step.parameters())


@pytest.mark.parametrize("domain", ["text", "patches"])
@pytest.mark.parametrize("objective", ["classify", "regress", "masked"])
@pytest.mark.parametrize("trunk", [*(trunk for trunk in WIDE_TRUNKS if trunk != "lorentz_net"), "conformer"])
def test_any_tokens_and_objectives(trunk, objective, domain):
    parts = make(domain, objective)
    batch = ready(parts)
    pool = "sum" if objective == "regress" else "blocks" if trunk == "conformer" else "auto"
    section = Encoder(kind="encoder", trunk=trunk, dim=8, depth=2, pool=pool)
    if trunk == "deep_sets" and objective == "masked":
        with refuses("objective.kind: masked", "deep_sets", key="model.trunk"):
            section.build(parts[0], parts[1])
        return
    step = Step(shaken(section.build(parts[0], parts[1])), parts[1]).eval()
    loss, outputs = step(batch.inputs(), True)
    packed, same = step(batch.inputs(packed=True), True)
    torch.testing.assert_close(packed, loss, rtol=1e-4, atol=1e-4)
    for key, value in outputs.items():
        torch.testing.assert_close(same[key], value, rtol=1e-3, atol=1e-4)
    (loss / batch.count).backward()
    assert not [name for name, weight in step.named_parameters() if weight.grad is None or not weight.grad.any()]


def test_mistakes_are_answered():
    parts = make("text", "classify")
    for trunk in WIDE_TRUNKS:
        with refuses(f"model.trunk: {trunk}", key="model.trunk"):
            Decoder(kind="decoder", trunk=trunk).build(*make("text", "next_token")[:2])
    raw = Particles(kind="particles", embed="features")
    with refuses(128, "transformer", 17, key="model.trunk", hint="deep_sets, edge_conv"):
        Encoder(kind="encoder").build({"tokens": raw}, parts[1])


@pytest.mark.parametrize("hidden", [None, 5, [6, 5], [7, 6, 5]])
def test_heads_of_several_layers(hidden):
    _, objective, _ = make("text", Classify(kind="classify", hidden=hidden, activation="relu", dropout=0.5))
    head = objective.heads(4, None)["class"]
    widths = [4, *([hidden] if isinstance(hidden, int) else hidden or []), 3]
    assert parameters(head) == sum(a * b + b for a, b in pairwise(widths))
    x = torch.randn(5, 4)
    layers = [module for module in head.modules() if isinstance(module, torch.nn.Linear)]
    y = x
    for layer in layers[:-1]:
        y = layer(y).relu()
    torch.testing.assert_close(head.eval()(x), layers[-1](y))
    assert not head.train()(x).equal(head(x))
