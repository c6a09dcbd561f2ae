"""The two Particle Transformers of `jets_speed.py`: weaver-core's and ours."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from sciformer.assembly import Assembly
from sciformer.data.batch import Batch, Stream
from sciformer.data.collate import AsyncTensors
from sciformer.domains.jets.interop import weaver
from sciformer.domains.jets.simulate import decays
from sciformer.evaluation.evaluate import one_behind
from sciformer.interop.config import Config
from sciformer.objectives.base import ANSWER, Step
from sciformer.recipe import Recipe
from sciformer.training.distributed import Ranks
from sciformer.training.optimizers import make_optimizer
from sciformer.training.step import OptimizerStep

SIZES = {"dim": 128, "depth": 8, "heads": 8, "pair": 64, "wide": 512}
TINY = {"dim": 16, "depth": 2, "heads": 2, "pair": 8, "wide": 32}
FEATURES, CLASSES, MOST, DROPOUT = 17, 10, 128, 0.1
Arrays = dict[str, Any]


def jets(count: int, seed: int) -> Arrays:
    """Random particles of jets, hardest first; multiplicity normal (45 ± 15), 2 to 128."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.round(rng.normal(45, 15, count)), 2, MOST).astype(np.int64)
    total = int(lengths.sum())
    start = np.repeat(np.arange(count), lengths)
    pt = np.exp(rng.normal(1.5, 1.2, total))
    order = np.lexsort((-pt, start))
    pt, eta, phi = pt[order], rng.uniform(-1.5, 1.5, count)[start], rng.uniform(-np.pi, np.pi, count)[start]
    eta, phi = eta + rng.normal(0, 0.25, total), phi + rng.normal(0, 0.25, total)
    momentum = np.stack([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)], -1)
    energy = np.sqrt((momentum**2).sum(-1) + rng.choice([0.0, 0.13957, 0.000511], total) ** 2)
    return {
        "features": rng.normal(0, 1, (total, FEATURES)).astype(np.float32),
        "vector": np.concatenate([momentum, energy[:, None]], 1).astype(np.float32),
        "at": rng.normal(0, 0.3, (total, 2)).astype(np.float32),
        "lengths": lengths,
        "label": rng.integers(0, CLASSES, count),
    }


def padded(sample: Arrays, pinned: bool) -> tuple[torch.Tensor, ...]:
    """Features (B, F, 128), vectors (B, 4, 128), mask (B, 1, 128) and labels as in weaver's loader.

    Padding repeats particles.
    """
    lengths = sample["lengths"]
    first = lengths.cumsum() - lengths
    place = first[:, None] + np.arange(MOST) % lengths[:, None]
    mask = (np.arange(MOST) < lengths[:, None])[:, None].astype(np.float32)
    arrays = [sample[name][place].transpose(0, 2, 1).copy() for name in ("features", "vector")]
    tensors = [torch.from_numpy(array) for array in (*arrays, mask, sample["label"])]
    return tuple(tensor.pin_memory() for tensor in tensors) if pinned else tuple(tensors)


def official(sizes: dict[str, int], compiled: bool = False) -> torch.nn.Module:
    """weaver-core's ParticleTransformer with the published settings."""
    try:
        theirs = importlib.import_module("weaver.nn.model.ParticleTransformer")
    except ImportError as error:
        raise SystemExit("weaver-core is needed: pip install --no-deps weaver-core==0.5.3") from error
    theirs._logger.disabled = True
    dropouts = {"dropout": DROPOUT, "attn_dropout": DROPOUT, "activation_dropout": DROPOUT}
    model: torch.nn.Module = theirs.ParticleTransformer(
        FEATURES,
        CLASSES,
        pair_input_dim=4,
        use_pre_activation_pair=False,
        embed_dims=(sizes["dim"], sizes["wide"], sizes["dim"]),
        pair_embed_dims=(sizes["pair"],) * 3,
        num_heads=sizes["heads"],
        num_layers=sizes["depth"],
        block_params=dropouts,
        fc_params=[],
        trim=True,
        compile_model=compiled,
    )
    return model


class Official:
    """Training step with weaver-core: autocast, loss, gradient, fused AdamW."""

    def __init__(self, model: torch.nn.Module, device: str, batches: list[Arrays], call: Any = None) -> None:
        self.model, self.device = model.to(device), torch.device(device)
        self.call = self.model if call is None else call(self.model)
        self.batches = [padded(batch, device == "cuda") for batch in batches]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4, fused=True)
        self.number = 0

    def inputs(self) -> list[torch.Tensor]:
        """Next batch on the device."""
        batch = self.batches[self.number % len(self.batches)]
        self.number += 1
        return [tensor.to(self.device, non_blocking=True) for tensor in batch]

    def train(self, steps: int) -> None:
        self.model.train()
        for _ in range(steps):
            x, v, mask, label = self.inputs()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                loss = F.cross_entropy(self.call(x, v=v, mask=mask), label)
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def infer(self, steps: int) -> None:
        """Predict batches; each is read on the host while the next is computed."""
        self.model.eval()
        for arriving in one_behind(self.answers(steps)):
            arriving.read()

    def answers(self, steps: int) -> Iterator[AsyncTensors]:
        """Probabilities on their way to the host."""
        for _ in range(steps):
            x, v, mask, _ = self.inputs()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                logits = self.call(x, v=v, mask=mask)
            yield AsyncTensors({"probabilities": logits.float().softmax(-1)})


class Ours:
    """The engine's update from ragged arrays: packing, transfer, gradient, norm, AdamW."""

    def __init__(self, theirs: torch.nn.Module, device: str, batches: list[Arrays], changes: dict[str, Any]) -> None:
        tensors = weaver.canonical_names({name: tensor.cpu().clone() for name, tensor in theirs.state_dict().items()})
        found = weaver.convert_transformer(tensors, Config({}, "the official model"), {})
        settings = {"learning_rate": 1e-4, "warmup": 0, "schedule": "constant", "weight_decay": 0.01}
        settings |= {"clip_norm": 0.0, "packed": True}
        sections = {"data": {"kind": "jets"}, "objective": {"kind": "classify"}, **found.sections}
        sections["train"] = settings | {"device": device, "batch": len(batches[0]["lengths"])}
        recipe = Recipe.from_dict(sections, changes)
        state = {"classes": found.classes, "counts": [1] * len(found.classes)}
        self.assembly = Assembly.from_state(recipe, {"tokens": {"tokens": {}}, "objective": state})
        model = self.assembly.network()
        model.load_state_dict(found.weights)
        ranks = Ranks(torch.device(device))
        self.step = Step(model.to(ranks.device), self.assembly.objective)
        optimizer = make_optimizer(self.step, recipe.train, ranks.device)
        size = len(batches[0]["lengths"])
        self.updater = OptimizerStep(self.step, self.step, optimizer, recipe.train, ranks, 1 << 40, size, print)
        self.order = [decays.CLASSES.index(name) for name in found.classes]
        self.batches = [self._batch(batch) for batch in batches]
        self.device, self.number = ranks.device, 0
        self.answer: Callable[..., Any] = self._answer
        if device == "cuda":
            self.answer = torch.compile(self._answer, dynamic=False, mode="reduce-overhead")

    def _batch(self, arrays: Arrays) -> Batch:
        columns = {name: arrays[name] for name in ("features", "vector", "at")}
        number = np.argsort(self.order)[arrays["label"]]
        sent, count = self.assembly.objective.sends, len(number)
        stream = Stream(columns, arrays["lengths"])
        return Batch({"tokens": stream}, {ANSWER: number}, np.arange(count), count, sent, most={"tokens": MOST})

    def batch(self) -> Batch:
        """Next batch on the host."""
        self.number += 1
        return self.batches[self.number % len(self.batches)]

    def train(self, steps: int) -> None:
        self.step.train()
        for _ in range(steps):
            batch = self.batch()
            self.updater(batch, self.number, batch.count)

    def _answer(self, inputs: Any) -> Any:
        return self.assembly.objective.predict(self.step.model, inputs)["probabilities"]

    @torch.no_grad()
    def infer(self, steps: int) -> None:
        """Predict batches; each is read on the host while the next is computed."""
        self.step.eval()
        for arriving in one_behind(self.answers(steps)):
            arriving.read()

    def answers(self, steps: int) -> Iterator[AsyncTensors]:
        """Probabilities on their way to the host."""
        for _ in range(steps):
            inputs = self.updater.inputs(self.batch()).to(self.device)
            if self.device.type == "cuda":
                torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                found = self.answer(inputs)
            yield AsyncTensors({"probabilities": found})


@torch.no_grad()
def difference(theirs: Official, ours: Ours, precision: torch.dtype, device: str) -> float:
    """Largest difference of probabilities on the first batch, in evaluation."""
    count = min(32, len(ours.batches[0]))
    model, network = theirs.model.to(device), ours.step.model.to(device)
    kinds = {torch.float64: torch.float64}.get(precision, torch.float32)
    was = model.training, network.training
    model.to(kinds).eval()
    network.to(kinds).eval()
    x, v, mask, _ = (part[:count].to(device) for part in theirs.batches[0])
    with torch.autocast(device, torch.bfloat16, enabled=precision == torch.bfloat16):
        expected = model(x.to(kinds), v=v.to(kinds), mask=mask.to(kinds)).double().softmax(-1)
        inputs = ours.batches[0].take(np.arange(count)).inputs("cpu", packed=True).to(torch.device(device))
        view = inputs.streams["tokens"]
        view.columns = {name: column.to(kinds) for name, column in view.columns.items()}
        found = ours.assembly.objective.predict(network, inputs)["probabilities"].double()
    model.to(torch.float32).train(was[0])
    network.to(torch.float32).train(was[1])
    return float((found - expected[:, ours.order]).abs().max())
