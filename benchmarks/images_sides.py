"""The two vision transformers of `images_speed.py`: timm's and ours."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sciformer.assembly import Assembly
from sciformer.data.batch import Batch, ModelInputs
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from sciformer.training.distributed import Ranks
from sciformer.training.optimizers import make_optimizer
from sciformer.training.step import OptimizerStep

SIZES = {"side": 224, "patch": 16, "dim": 768, "depth": 12, "heads": 12, "classes": 1000}
TINY = {"side": 24, "patch": 8, "dim": 32, "depth": 2, "heads": 2, "classes": 10}
MEAN, DEVIATION = [127.5] * 3, [73.9] * 3  # of pixels that are evenly spread over 0 .. 255
PARTS = {"attn.qkv": "attention.qkv", "attn.proj": "attention.out", "norm1": "attention_norm", "norm2": "mlp_norm"}
PARTS |= {"mlp.fc1": "mlp.up", "mlp.fc2": "mlp.down"}
Arrays = dict[str, Any]


def images(count: int, sizes: dict[str, int], seed: int) -> Arrays:
    """Noise images as bytes, with random classes."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (count, sizes["side"], sizes["side"], 3), np.uint8)
    return {"image": pixels, "label": rng.integers(0, sizes["classes"], count).astype(str)}


def timm(sizes: dict[str, int]) -> nn.Module:
    """timm's ViT-B/16 with random weights, or a tiny version."""
    try:
        theirs: Any = importlib.import_module("timm")
    except ImportError as error:
        raise SystemExit(f"timm is needed (pip install timm, or --timm with its wheel): {error}") from error
    if sizes == SIZES:
        return theirs.create_model("vit_base_patch16_224", pretrained=False)
    small = {"img_size": sizes["side"], "patch_size": sizes["patch"], "embed_dim": sizes["dim"]}
    small |= {"depth": sizes["depth"], "num_heads": sizes["heads"], "num_classes": sizes["classes"]}
    return theirs.models.vision_transformer.VisionTransformer(**small)


def renamed(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm's weights under our names.

    timm's position of the class token is added to our class token, which has the position of the first patch.
    """
    position = theirs["pos_embed"][0]
    kernel = theirs["patch_embed.proj.weight"]  # (D, channels, height, width); our patches have channels last
    found = {
        "entrance.embedding.linear.weight": kernel.permute(0, 2, 3, 1).flatten(1),
        "entrance.embedding.linear.bias": theirs["patch_embed.proj.bias"],
        "trunk.position.table": position[1:],
        "pooling.token": theirs["cls_token"][0, 0] + position[0] - position[1],
    }
    for end in ("weight", "bias"):
        found |= {f"trunk.norm.{end}": theirs[f"norm.{end}"], f"heads.class.layer.1.{end}": theirs[f"head.{end}"]}
    for name, tensor in theirs.items():
        if name.startswith("blocks."):
            _, number, rest = name.split(".", 2)
            part, _, end = rest.rpartition(".")
            found[f"trunk.blocks.{number}.{PARTS[part]}.{end}"] = tensor
    return {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}


def recipe(sizes: dict[str, int], batch: int, device: str, changes: dict[str, Any]) -> Recipe:
    """ViT-B/16 as in timm: class token, pre-norm, no dropout."""
    model = {"kind": "encoder", "dim": sizes["dim"], "depth": sizes["depth"], "heads": sizes["heads"]}
    tree = {
        "data": {"kind": "arrays"},
        "tokens": {"kind": "patches", "patch": sizes["patch"]},
        "model": model | {"pool": "class_token", "norm_epsilon": 1e-6},
        "objective": {"kind": "classify"},
        "train": {"batch": batch, "learning_rate": 1e-4, "warmup": 0, "schedule": "constant", "device": device}
        | {"clip_norm": 0.0},
    }
    return Recipe.from_dict(tree, changes)


def state(sizes: dict[str, int]) -> dict[str, Any]:
    """State that tokens and objective would learn from the data."""
    names = sorted(str(number) for number in range(sizes["classes"]))
    tokens = {"shape": [sizes["side"], sizes["side"], 3], "mean": MEAN, "deviation": DEVIATION}
    return {"tokens": {"tokens": tokens}, "objective": {"classes": names, "counts": [1] * len(names)}}


class Timm:
    """Training step as in timm's script: autocast, compiled model, loss, gradient, fused AdamW."""

    def __init__(self, model: nn.Module, device: str, batches: list[Arrays], compiled: dict[str, Any] | None) -> None:
        self.model, self.device = model.to(device), torch.device(device)
        self.call: Any = self.model if compiled is None else torch.compile(self.model, **compiled)
        self.batches = [self._tensors(batch) for batch in batches]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4, weight_decay=0.1, fused=True)
        self.graphs = compiled is not None and "mode" in compiled
        self.number = 0

    def _tensors(self, batch: Arrays) -> tuple[Tensor, Tensor]:
        """Scaled images with channels first, and class indices in our order."""
        pixels = torch.from_numpy(batch["image"]).permute(0, 3, 1, 2).contiguous()
        scaled = (pixels.float() - MEAN[0]) / DEVIATION[0]
        names = {name: place for place, name in enumerate(sorted(set(map(str, range(self.classes)))))}
        return scaled, torch.tensor([names[str(label)] for label in batch["label"]])

    @property
    def classes(self) -> int:
        model: Any = self.model
        return int(model.num_classes)

    def settle(self) -> None:
        """Move the batches to the device."""
        self.batches = [(x.to(self.device), y.to(self.device)) for x, y in self.batches]

    def pin(self) -> None:
        """Keep the batches in pinned host memory."""
        self.batches = [(x.pin_memory(), y.pin_memory()) for x, y in self.batches]

    def train(self, steps: int) -> None:
        self.model.train()
        for _ in range(steps):
            x, label = (part.to(self.device, non_blocking=True) for part in self.batches[self.number])
            self.number = (self.number + 1) % len(self.batches)
            if self.graphs:
                torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                loss = F.cross_entropy(self.call(x), label)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


class There:
    """Inputs that are already on the device; `to` does nothing."""

    def __init__(self, inputs: ModelInputs) -> None:
        self.inputs = inputs

    def to(self, device: torch.device) -> ModelInputs:
        return self.inputs


class Ours:
    """The engine's update: gradient, its norm, fused AdamW, compiled as in a training."""

    def __init__(self, theirs: nn.Module, sizes: dict[str, int], device: str, batches: list[Arrays], way: Any) -> None:
        settings = recipe(sizes, len(batches[0]["label"]), device, way.get("recipe", {}))
        self.assembly = Assembly.from_state(settings, state(sizes))
        model = self.assembly.network()
        model.load_state_dict(renamed(theirs.state_dict()))
        ranks = Ranks(torch.device(device))
        self.device = ranks.device
        self.step = Step(model.to(self.device), self.assembly.objective)
        optimizer = make_optimizer(self.step, settings.train, self.device)
        count = len(batches[0]["label"])
        self.updater = OptimizerStep(self.step, self.step, optimizer, settings.train, ranks, 1 << 40, count, print)
        self.batches = [self._batch(batch, way.get("without", ())) for batch in batches]
        self.number = 0

    def _batch(self, arrays: Arrays, without: tuple[str, ...]) -> Batch:
        dataset = self.assembly.samples(arrays)
        ids = np.arange(len(dataset))
        parts = self.assembly.tokens, self.assembly.objective
        made = prepare(dataset.batch(ids), *parts, SampleRandom(0, 0, ids), training=True)
        for name in without:
            made.stream.columns.pop(name)
        return made

    def settle(self) -> None:
        """Move the batches to the device."""
        waiting = {id(batch): There(self.updater.inputs(batch).to(self.device)) for batch in self.batches}
        self.updater.inputs = lambda piece, room=None: waiting[id(piece)]  # type: ignore

    def train(self, steps: int) -> None:
        self.step.train()
        for _ in range(steps):
            batch = self.batches[self.number % len(self.batches)]
            self.number += 1
            self.updater(batch, self.number, batch.count)


@torch.no_grad()
def difference(theirs: Timm, ours: Ours, precision: torch.dtype, device: str) -> float:
    """Largest difference of logits in evaluation, relative to the largest logit."""
    count = min(16, len(ours.batches[0]))
    model, network = theirs.model.to(device), ours.step.model.to(device)
    kind = torch.float64 if precision == torch.float64 else torch.float32
    model.to(kind).eval()
    network.to(kind).eval()
    with torch.autocast(device, torch.bfloat16, enabled=precision == torch.bfloat16):
        expected = model(theirs.batches[0][0][:count].to(device, kind)).double()
        view = ours.batches[0].take(np.arange(count)).inputs(device).stream
        view.columns["patch"] = view.columns["patch"].to(kind)
        parts: Any = network
        found = parts.heads["class"](parts.pool(parts.encode(view))).double()
    model.to(torch.float32).train()
    network.to(torch.float32).train()
    model.to(theirs.device)
    network.to(ours.device)
    return float((found - expected).abs().max() / expected.abs().max())
