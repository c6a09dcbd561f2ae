"""ParticleNet as weaver stores it: which of its weights is which of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....interop.config import Config
from ....interop.weight_map import BATCH_NORM, WEIGHT, WeightMap, from_theirs, layer, sort_classes
from .weaver import Checkpoint, class_names, count_numbered, feature_set

LAYERS_PER_BLOCK = 3  # of one of our blocks


def convert_particlenet(tensors: dict[str, Tensor], config: Config, changes: Mapping[str, Any]) -> Checkpoint:
    """A ParticleNet (arXiv 1902.08570) without its fusion block."""
    blocks = count_numbered(tensors, "edge_convs.")
    widths = [len(tensors[f"edge_convs.{i}.convs.0.weight"]) for i in range(blocks)]
    depths = {count_numbered(tensors, f"edge_convs.{i}.convs.") for i in range(blocks)}
    hidden = [len(tensors[f"fc.{i}.0.weight"]) for i in range(count_numbered(tensors, "fc.") - 1)]
    for key, wrong in (
        ("use_fusion=False", any(name.startswith("fusion_block.") for name in tensors)),
        ("use_fts_bn=True", "bn_fts.weight" not in tensors),
        (f"{LAYERS_PER_BLOCK} layers in a block", depths != {LAYERS_PER_BLOCK}),
        ("a layer before the last one", not hidden),
    ):
        if wrong:
            raise config.error(f"the ParticleNet in {config.where} must have {key}")
    sections = {
        "tokens": {
            "kind": "particles",
            "features": feature_set(len(tensors["bn_fts.weight"]), config, changes),
            "embed": "features",
        },
        "model": {"kind": "encoder", "trunk": "edge_conv", "dim": widths[-1], "depth": blocks, "widths": widths}
        | {"neighbours": 16, "pool": "mean"},
        "objective": {"kind": "classify", "hidden": hidden[0] if len(hidden) == 1 else hidden}
        | {"activation": "relu", "dropout": 0.1},
    }
    classes = class_names(len(tensors[f"fc.{len(hidden)}.weight"]))
    weights = from_theirs(_weight_links(tensors, widths, len(hidden)), tensors, config)
    notes = []
    if "model.neighbours" not in changes:
        notes.append(
            "the weights do not tell how many neighbours a particle has; 16 here, as in the published models. If yours "
            "has others: --model.neighbours"
        )
    classes = sort_classes(weights, _head_layers(len(hidden)) + ".down", classes)
    return Checkpoint(sections, weights, classes, notes)


def _weight_links(tensors: Mapping[str, Tensor], widths: list[int], hidden: int) -> list[WeightMap]:
    links = layer("trunk.input_norm", "bn_fts", suffixes=BATCH_NORM)
    for i in range(len(widths)):
        ours, theirs = f"trunk.blocks.{i}.", f"edge_convs.{i}."
        pairs = {f"layers.{j}": f"convs.{j}" for j in range(LAYERS_PER_BLOCK)}
        norms = {f"norms.{j}": f"bns.{j}" for j in range(LAYERS_PER_BLOCK)}
        if f"{theirs}sc.weight" in tensors:  # where the width changes
            pairs, norms = {**pairs, "change": "sc"}, {**norms, "change_norm": "sc_bn"}
        for table, suffixes in ((pairs, WEIGHT), (norms, BATCH_NORM)):
            for own, other in table.items():
                links += layer(ours + own, theirs + other, suffixes=suffixes)
    for i in range(hidden):
        last = i + 1 == hidden
        links += layer(f"{_head_layers(hidden)}.up" if last else f"heads.class.layer.{3 * i}", f"fc.{i}.0")
    return links + layer(f"{_head_layers(hidden)}.down", f"fc.{hidden}")


def _head_layers(hidden: int) -> str:
    """Place of the last two layers of a head, behind the hidden ones."""
    return "heads.class.layer" if hidden == 1 else f"heads.class.layer.{3 * (hidden - 1)}"
