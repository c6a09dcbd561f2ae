"""Trained vector-quantised autoencoder inside the state of tokens, as plain JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from ....data.batch import Batch, Stream
from ....data.columns import Array
from ....errors import UserError
from ....recipe.registry import find

PICTURES_AT_ONCE = 64


def pack(path: str) -> dict[str, Any]:
    """Recipe, statistics and weights of a run, as plain JSON.

    With this copy, a run that uses the codes does not need the run of the autoencoder.
    """
    from ....run import Run

    run = Run(path)
    if not hasattr(run.model, "decode_codes"):
        message = f"the run {path} is no vector-quantised autoencoder, but `model.kind: {run.recipe.model.kind}`"
        raise UserError(message, hint="Train an autoencoder first: sciformer train images/vq", key="tokens.autoencoder")
    weights = {name: weight.detach().cpu().contiguous() for name, weight in run.model.state_dict().items()}
    recipe = {section: run.recipe.to_dict()[section] for section in ("tokens", "model", "objective")}
    return {
        "recipe": recipe,
        "statistics": run.assembly.state()["tokens"],
        "weights": base64.b64encode(save(weights)).decode(),
    }


class Autoencoder:
    """Patches and model of a vector-quantised autoencoder, on the CPU."""

    def __init__(self, recipe: Mapping[str, Any], statistics: Mapping[str, Any], weights: str) -> None:
        made = {name: find(name, section["kind"]).model_validate(section) for name, section in recipe.items()}
        self.patches: Any = made["tokens"].fresh()
        (learned,) = statistics.values()
        self.patches.restore(learned)
        with torch.random.fork_rng(devices=[]):
            self.model: Any = made["model"].build({"tokens": self.patches}, made["objective"])
        self.model.load_state_dict(load(base64.b64decode(weights)))
        self.model.eval().requires_grad_(False)

    @property
    def side(self) -> int:
        """Side of a patch."""
        return int(self.patches.sides[0])

    @property
    def codes(self) -> int:
        """Number of codewords."""
        return int(self.model.quantizer.codes)

    @torch.no_grad()
    def encode(self, images: Array) -> Array:
        """Codes (n, N) of images (n, H, W, C)."""
        parts = []
        for start in range(0, len(images), PICTURES_AT_ONCE):
            some = images[start : start + PICTURES_AT_ONCE]
            stream = self.patches.normalise(self.patches.tokenize({"image": some}))
            parts.append(self.model.codes(self._inputs(stream)).numpy())
        return np.concatenate(parts) if parts else np.zeros((0, 0), np.int64)

    @torch.no_grad()
    def decode(self, codes: Array, shape: Sequence[int]) -> Array:
        """Images (n, H, W, C) of codes (n, N); a negative code is missing."""
        found = []
        for start in range(0, len(codes), PICTURES_AT_ONCE):
            some = torch.from_numpy(np.asarray(codes[start : start + PICTURES_AT_ONCE], np.int64))
            stream = self.patches.blank(len(some))
            hidden = self.model.decode_codes(some, self._inputs(stream))
            patches = self.model.readout.predict(hidden)["patch"].flatten(0, 1).numpy()
            found.append(np.asarray(self.patches.invert(stream.with_columns(patch=patches))["image"]))
        return np.concatenate(found) if found else np.zeros((0, *shape), np.float32)

    def _inputs(self, stream: Stream) -> Any:
        return Batch({"tokens": stream}, aside={"tokens": self.patches.host_columns}).inputs().stream


def unpack(state: Mapping[str, Any]) -> Autoencoder:
    """Autoencoder from a state made by `pack`; recent autoencoders are cached."""
    return _unpack(json.dumps([state["recipe"], state["statistics"]]), state["weights"])


@lru_cache(maxsize=4)
def _unpack(rest: str, weights: str) -> Autoencoder:
    recipe, statistics = json.loads(rest)
    return Autoencoder(recipe, statistics, weights)
