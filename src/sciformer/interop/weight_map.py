"""Which weight of ours is which of theirs: one table for both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from .config import Config

MAX_LISTED_NAMES = 6  # names shown of a long list
Suffixes = Mapping[str, str]
"""Endings of our weights in a layer, and of theirs."""
LAYER: Suffixes = {".weight": ".weight", ".bias": ".bias"}
WEIGHT: Suffixes = {".weight": ".weight"}
BATCH_NORM: Suffixes = {**LAYER, ".running_mean": ".running_mean", ".running_var": ".running_var"}


@dataclass(frozen=True)
class WeightMap:
    """One weight of ours, and their weights in it, one below the other.

    rows         of each of theirs, as ours has them; for one alone they need not be given
    transposed   theirs are matrices stored as (inputs, outputs)
    rope_halves  heads of each of theirs in which rotary positions couple (x_i, x_i+E/2), as Hugging Face has them,
                 where ours couple neighbours (x_2i, x_2i+1); 0 where nothing is turned
    zeros        ours may lack it, and theirs are zeros then
    """

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()
    transposed: bool = False
    rope_halves: tuple[int, ...] = ()
    zeros: bool = False

    def from_theirs(self, theirs: dict[str, Tensor], config: Config) -> Tensor:
        """Ours, from theirs; what was used is removed."""
        parts = []
        for i, name in enumerate(self.theirs):
            part = self._turn(theirs.pop(name))
            if self.rows and part.shape[0] != self.rows[i]:
                rows = f"{self.rows[i]} rows, as the configuration says"
                raise config.error(f"`{name}` must have {rows}, not {part.shape[0]}")
            heads = self.rope_halves[i] if self.rope_halves else 0
            parts.append(rope_pairs_from_halves(part, heads) if heads else part)
        whole = torch.cat(parts)
        return whole.to(torch.promote_types(whole.dtype, torch.float32)).contiguous()

    def to_theirs(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Theirs, from ours."""
        if self.ours not in ours and not self.zeros:
            raise UserError(f"the weight `{self.ours}` is missing in the run")
        whole = ours.get(self.ours, torch.zeros(sum(self.rows)))
        given = {}
        for i, part in enumerate(whole.split(self.rows) if self.rows else [whole]):
            heads = self.rope_halves[i] if self.rope_halves else 0
            part = rope_halves_from_pairs(part, heads) if heads else part
            given[self.theirs[i]] = self._turn(part).contiguous().clone()
        return given

    def _turn(self, part: Tensor) -> Tensor:
        return part.T if self.transposed and part.dim() == 2 else part


def layer(
    ours: str, *theirs: str, suffixes: Suffixes = LAYER, rows: tuple[int, ...] = (), **options: Any
) -> list[WeightMap]:
    """The weights of a layer or norm; with known rows, missing biases are zeros there.

    options   further fields of each `WeightMap`
    """
    rows = (sum(rows),) if rows and len(theirs) == 1 else rows
    return [
        WeightMap(
            ours + own, tuple(name + end for name in theirs), rows, zeros=bool(rows) and own == ".bias", **options
        )
        for own, end in suffixes.items()
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
    """The weights of the blocks of a transformer.

    table         our layers in a block, and theirs
    theirs, ours  names before those of the table, with {} for the number of a block
    model         the section, for depth and widths
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
            transposed=transposed,
        )
    ]


def from_theirs(links: Iterable[WeightMap], theirs: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """All of ours; every weight of theirs must find its place."""
    links, left = list(links), dict(theirs)
    missing = [name for link in links for name in link.theirs if name not in left]
    if missing:
        there = f"There are {join_names(sorted(left))}."
        raise config.error(f"weights of {config.where} are missing: {join_names(missing)}", there)
    ours = {link.ours: link.from_theirs(left, config) for link in links}
    if left:
        raise config.error(
            f"weights of {config.where} are not of the kind of model that it says it is: {join_names(sorted(left))}",
            "They would change what the model computes; a model with them is not known here.",
        )
    return ours


def to_theirs(links: Iterable[WeightMap], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All of theirs; every weight of ours must find its place."""
    links = list(links)
    left = sorted(ours.keys() - {link.ours for link in links})
    if left:
        raise UserError(f"Hugging Face has no place for the weights {join_names(left)}")
    return {name: tensor for link in links for name, tensor in link.to_theirs(ours).items()}


def sort_classes(weights: dict[str, Tensor], head: str, classes: Sequence[str]) -> list[str]:
    """The classes in the order of an objective, to which the rows of the head are put.

    By number where all are numbers, else by name.
    """
    numbers = all(name.isdecimal() for name in classes)
    order = sorted(range(len(classes)), key=lambda i: int(classes[i]) if numbers else classes[i])
    for name in (f"{head}.weight", f"{head}.bias"):
        weights[name] = weights[name][torch.tensor(order)].contiguous()
    return [classes[i] for i in order]


def join_names(names: list[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more


def rope_pairs_from_halves(weight: Tensor, heads: int) -> Tensor:
    """Rows (head, half, pair) of queries or keys as (head, pair, half)."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def rope_halves_from_pairs(weight: Tensor, heads: int) -> Tensor:
    """Invert `rope_pairs_from_halves`."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
