"""Maps between weights of Sciformer (`ours`) and of another library (`theirs`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError, list_names
from .config import Config

Suffixes = Mapping[str, str]
"""Suffixes of the weights of a layer: suffix in Sciformer -> suffix in the other library."""
LAYER: Suffixes = {".weight": ".weight", ".bias": ".bias"}
WEIGHT: Suffixes = {".weight": ".weight"}
BATCH_NORM: Suffixes = {**LAYER, ".running_mean": ".running_mean", ".running_var": ".running_var"}


@dataclass(frozen=True)
class WeightMap:
    """Map between a weight of Sciformer and several weights of another library.

    The weight of Sciformer is the concatenation of one or more weights of the other library along the first axis.

    ours         name of the weight in Sciformer
    theirs       names of the weights in the other library
    rows         number of rows of each weight in `theirs`; optional for a single weight
    transposed   whether the other library stores matrices as (inputs, outputs)
    rope_halves  number of heads to reorder in each weight of `theirs` (0: none). Rotary positions of Hugging Face
                 rotate the pairs (x_i, x_i+E/2) of a head of width E; rotary positions of Sciformer rotate the
                 neighbours (x_2i, x_2i+1)
    rope_share   rotated fraction of each head
    zeros        whether the weight of Sciformer may be missing; the other weights are then zeros
    """

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()
    transposed: bool = False
    rope_halves: tuple[int, ...] = ()
    rope_share: float = 1.0
    zeros: bool = False

    def from_theirs(self, theirs: dict[str, Tensor], config: Config) -> Tensor:
        """Remove the weights of the other library from `theirs`, and convert them."""
        parts = []
        for i, name in enumerate(self.theirs):
            part = self._turn(theirs.pop(name))
            if self.rows and part.shape[0] != self.rows[i]:
                needed = f"the configuration needs {self.rows[i]} rows"
                raise config.error(f"`{name}` has {part.shape[0]} rows, but {needed}")
            heads = self.rope_halves[i] if self.rope_halves else 0
            parts.append(rope_pairs_from_halves(part, heads, self.rope_share) if heads else part)
        whole = torch.cat(parts)
        return whole.to(torch.promote_types(whole.dtype, torch.float32)).contiguous()

    def to_theirs(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert a weight of Sciformer to weights of the other library.

        ours   weights of the model, by name; only the weight `self.ours` is converted

        Returns  weights by their names in the other library
        """
        if self.ours not in ours and not self.zeros:
            raise UserError(f"the run has no weight `{self.ours}`")
        whole = ours.get(self.ours, torch.zeros(sum(self.rows)))
        given = {}
        for i, part in enumerate(whole.split(self.rows) if self.rows else [whole]):
            heads = self.rope_halves[i] if self.rope_halves else 0
            part = rope_halves_from_pairs(part, heads, self.rope_share) if heads else part
            given[self.theirs[i]] = self._turn(part).contiguous().clone()
        return given

    def _turn(self, part: Tensor) -> Tensor:
        return part.T if self.transposed and part.dim() == 2 else part


def layer(
    ours: str, *theirs: str, suffixes: Suffixes = LAYER, rows: tuple[int, ...] = (), **options: Any
) -> list[WeightMap]:
    """Maps of the weights of a layer or norm.

    suffixes  suffixes of the weights: suffix in Sciformer -> suffix in the other library
    rows      number of rows of each weight in `theirs`; if given, a missing bias becomes zeros
    options   further fields of each `WeightMap`
    """
    rows = (sum(rows),) if rows and len(theirs) == 1 else rows
    named = {ours + own: tuple(name + end for name in theirs) for own, end in suffixes.items()}
    return [
        WeightMap(own, names, rows, zeros=bool(rows and own.endswith(".bias")), **options)
        for own, names in named.items()
    ]


def block_links(
    table: Mapping[str, tuple[str, ...]],
    theirs: str,
    model: Any,
    ours: str = "trunk.blocks.{}.",
    suffixes: Suffixes = LAYER,
    norm_suffixes: Suffixes = LAYER,
    transposed: bool = False,
) -> list[WeightMap]:
    """Maps of the weights of all transformer blocks.

    table         names of the layers of a block: ours -> theirs
    theirs, ours  prefixes of the names in the table, with {} for the index of the block
    model         recipe section `model`, for depth and widths
    """
    width, kv_heads = model.head_dim or model.dim // model.heads, model.kv_heads or model.heads
    rows = {
        "attention.qkv": (model.heads * width, kv_heads * width, kv_heads * width),
        "mlp.up": (round(model.mlp_ratio * model.dim),) * (2 if model.activation == "swiglu" else 1),
    }
    turned = {"attention.qkv": (model.heads, kv_heads, 0)} if model.position == "rotary" else {}
    return [
        link
        for i in range(model.depth)
        for name, parts in table.items()
        for link in layer(
            ours.format(i) + name,
            *(theirs.format(i) + part for part in parts),
            suffixes=norm_suffixes if name.endswith("norm") else suffixes,
            rows=rows.get(name, (model.dim,)),
            rope_halves=turned.get(name, ()),
            rope_share=model.rotary_share if turned else 1.0,
            transposed=transposed,
        )
    ]


def from_theirs(links: Iterable[WeightMap], theirs: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """Convert all weights of another library; refuse missing and unused weights."""
    links, left = list(links), dict(theirs)
    if missing := [name for link in links for name in link.theirs if name not in left]:
        there = f"It has {list_names(sorted(left))}."
        raise config.error(f"{config.where} lacks the weights {list_names(missing)}", there)
    ours = {link.ours: link.from_theirs(left, config) for link in links}
    if left:
        message = f"{config.where} has weights that are unknown for this kind of model: {list_names(sorted(left))}"
        raise config.error(message, "Models with these weights are not supported.")
    return ours


def to_theirs(links: Iterable[WeightMap], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert all weights of Sciformer for another library; refuse unused weights."""
    links = list(links)
    if left := sorted(ours.keys() - {link.ours for link in links}):
        raise UserError(f"the Hugging Face class has no weights for {list_names(left)}")
    return {name: tensor for link in links for name, tensor in link.to_theirs(ours).items()}


def sort_classes(weights: dict[str, Tensor], head: str, classes: Sequence[str]) -> list[str]:
    """Sort classes and the rows of the head; return the sorted classes.

    As in the objectives, the order is by number if all names are integers, otherwise alphabetical.
    """
    numbers = all(name.isdecimal() for name in classes)
    order = sorted(range(len(classes)), key=lambda i: int(classes[i]) if numbers else classes[i])
    for name in (f"{head}.weight", f"{head}.bias"):
        weights[name] = weights[name][torch.tensor(order)].contiguous()
    return [classes[i] for i in order]


def rope_pairs_from_halves(weight: Tensor, heads: int, share: float = 1.0) -> Tensor:
    """Reorder rows (head, half, pair) of queries or keys to (head, pair, half).

    share   rotated fraction of the rows of a head, starting with the first row; the other rows stay in place
    """
    rotated, rest = _rotated_rows(weight, heads, share)
    return _join_rows(rotated.unflatten(1, (2, -1)).transpose(1, 2), rest)


def rope_halves_from_pairs(weight: Tensor, heads: int, share: float = 1.0) -> Tensor:
    """Reorder rows (head, pair, half) to (head, half, pair).

    This is the inverse of `rope_pairs_from_halves`.
    """
    rotated, rest = _rotated_rows(weight, heads, share)
    return _join_rows(rotated.unflatten(1, (-1, 2)).transpose(1, 2), rest)


def _rotated_rows(weight: Tensor, heads: int, share: float) -> tuple[Tensor, Tensor]:
    rows = weight.unflatten(0, (heads, -1))
    turned = 2 * round(share * rows.shape[1] / 2)
    return rows[:, :turned], rows[:, turned:]


def _join_rows(rotated: Tensor, rest: Tensor) -> Tensor:
    return torch.cat([rotated.flatten(1, 2), rest], 1).flatten(0, 1)
