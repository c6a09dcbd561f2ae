"""Small data of two domains, and every objective on them."""

import numpy as np
import torch

from sciformer.assembly import Assembly
from sciformer.data.dataset import Dataset
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.data.source import Memory
from sciformer.domains.images.tokens import Patches
from sciformer.domains.text.tokens import Text, as_table
from sciformer.models.encoder import Encoder
from sciformer.objectives.base import Step
from sciformer.objectives.classify import Classify
from sciformer.objectives.masked import Masked
from sciformer.objectives.next_token import NextToken
from sciformer.objectives.regress import Regress
from sciformer.training.config import Train
from tests.nn.parity import shake

COUNT = 7
TEXTS = ["abacus", "", "a", "cabbage face", "deaf bee", "ad", "fade a bed"]
IMAGES = np.random.default_rng(0).normal(size=(COUNT, 8, 4, 2)) * [2, 5] + [1, -3]
TRUTH = {
    "label": np.array(["up", "down", "up", "left", "up", "down", "up"]),
    "weight": np.array([1.0, 2, 0, 0.5, 1, 3, 1]),
    "target": np.linspace(250, 300, COUNT),
    "other": np.arange(COUNT) ** 2,
}
OBJECTIVES = {
    "classify": lambda: Classify(kind="classify", smoothing=0.1, balance=True, weight="weight", hidden=5),
    "regress": lambda: Regress(kind="regress", targets=["target", "other"]),
    "masked": lambda: Masked(kind="masked", mask_ratio=0.4),
    "next_token": lambda: NextToken(kind="next_token"),
}


def make_tokens(domain):
    if domain == "patches":
        tokens = Patches(kind="patches", patch=2)
    else:
        pieces = {"unit": "wordpiece", "vocabulary": 40} if domain == "subwords" else {}
        tokens = Text(kind="text", context=16, **pieces)
    tokens.fit([make_table(domain)])
    return tokens


def make_table(domain):
    return {**({"image": IMAGES} if domain == "patches" else as_table(TEXTS)), **TRUTH}


def make(domain, objective, **changes):
    """Tokens by stream, a fitted objective and the data set."""
    tokens = {"tokens": make_tokens(domain)}
    dataset = Dataset(Memory({**make_table(domain), **changes}), tokens)
    made = OBJECTIVES[objective]() if isinstance(objective, str) else objective
    made.fit(dataset)
    return tokens, made, dataset


def ready(parts, ids=None, training=False, seed=0):
    """The prepared batch of some samples."""
    tokens, objective, dataset = parts
    ids = np.arange(len(dataset)) if ids is None else np.asarray(ids)
    return prepare(dataset.batch(ids), tokens, objective, SampleRandom(seed, 0, ids), training)


def step_of(parts, section=Encoder, **options):
    """A small model and its objective as one module."""
    tokens, objective, *_ = parts
    torch.manual_seed(0)
    made = section(kind=section.__name__.lower(), **{"dim": 8, "depth": 1, "heads": 2, **options})
    return Step(shaken(made.build(tokens, objective)), objective)


def frozen_step_of(parts, section=Encoder, **options):
    return step_of(parts, section, **options).eval().requires_grad_(False)


def double(inputs, junk=False):
    """Inputs in double precision; with junk, something else than zeros stands at the padding."""
    view = inputs.stream
    for name, column in view.columns.items():
        column = column.double() if column.is_floating_point() else column
        if junk and isinstance(view.valid, torch.Tensor) and column.dtype != torch.bool:
            column[~view.valid] = 2
        view.columns[name] = column
    inputs.samples = {k: v.double() if v.is_floating_point() else v for k, v in inputs.samples.items()}
    return inputs


def learn(module, loss, steps, rate):
    """The losses of steps with Adam."""
    optimizer, losses = torch.optim.Adam(module.parameters(), rate), []
    for _ in range(steps):
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        losses.append(float(found.detach()))
    return losses


def assembly_of(parts):
    """An assembly without a recipe on disk."""
    tokens, objective, _ = parts
    made = object.__new__(Assembly)
    made.tokens, made.objective, made.splits, made._datasets = tokens, objective, None, {}
    made.recipe = type("Recipe", (), {"train": Train(seed=0)})
    return made


def shaken(module):
    """A module whose parameters are all away from the zeros and ones they start with."""
    torch.manual_seed(1)
    return shake(module)
