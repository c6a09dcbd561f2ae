"""Import of weaver checkpoints: Particle Transformer and ParticleNet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....assembly import Assembly
from ....errors import UserError
from ....interop.config import Config
from ....interop.importing import Imported, Importer, imported_recipe
from ....interop.reading import is_weights_file, read_weights
from ....interop.weight_map import BATCH_NORM, LAYER, WEIGHT, WeightMap, from_theirs, layer, sort_classes
from ..features import FEATURE_SETS
from ..layers import PAIR_FEATURES
from ..simulate.decays import CLASSES  # classes of JetClass, in the order of the published models
from ..tokens import Particles

FEATURE_SETS_BY_COUNT = {len(features): name for name, features in FEATURE_SETS.items()}
PAIR_FEATURES_BY_COUNT: dict[int, list[str]] = {0: [], 1: ["ln_delta"], 3: [*PAIR_FEATURES[:3]], 4: [*PAIR_FEATURES]}
HEAD = "heads.class.layer.1"
LAYERS_PER_BLOCK = 3  # layers per EdgeConv block of ParticleNet
EPSILON = float(torch.finfo(torch.float32).eps)  # epsilon of RMSNorm in weaver, in single precision
BLOCK_LAYERS = {  # our layer: their layer; some models have no `post` norms
    "attention_norm": "pre_attn_norm",
    "attention.qkv": "attn.in_proj",
    "attention.out": "attn.out_proj",
    "attention_out_norm": "post_attn_norm",
    "mlp_norm": "pre_fc_norm",
    "mlp.norm": "post_fc_norm",
    "mlp.down": "fc2",
}
BLOCK_SCALES = {"output_scale": "c_attn", "residual_scale": "w_resid"}
# Weights of a block that show the use of an entry of `model.extras`.
BLOCK_EXTRAS = {
    "c_attn": "output_scale",
    "post_attn_norm.weight": "attention_norm",
    "post_fc_norm.weight": "hidden_norm",
    "w_resid": "residual_scale",
}


@dataclass
class Checkpoint:
    """Weaver model in the layout of Sciformer.

    classes    names of the classes, sorted
    outputs    the same names in the order of the outputs of weaver
    head       name of the output layer
    features   number of features of a particle
    """

    sections: dict[str, dict[str, Any]]
    weights: dict[str, Tensor]
    classes: list[str]
    outputs: list[str]
    head: str
    features: int
    notes: list[str] = field(default_factory=list)


def read_checkpoint(path: Path, changes: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a file of weights.

    changes   recipe values for options that the weights do not determine
    """
    tensors, config = canonical_names(read_weights(path)), Config({}, str(path), path)
    convert = convert_transformer if is_transformer(tensors) else convert_particlenet
    return convert(tensors, config, changes or {})


def is_transformer(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the weights have the names of a Particle Transformer."""
    return "cls_token" in tensors and "blocks.0.pre_attn_norm.weight" in tensors


def recognises(source: Path) -> bool:
    """Whether a file has weights of a Particle Transformer or a ParticleNet."""
    if not is_weights_file(source):
        return False
    tensors = canonical_names(read_weights(source))
    return is_transformer(tensors) or any(name.startswith("edge_convs.") for name in tensors)


def canonical_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename weights as in weaver-core 0.5; convolutions of width 1 become matrices."""
    found = {}
    for name, tensor in tensors.items():
        if name.endswith("num_batches_tracked"):
            continue
        name = name.removeprefix("module.").removeprefix("mod.").replace("in_proj_", "in_proj.")
        while tensor.dim() > 2 and tensor.shape[-1] == 1 and name != "cls_token":
            tensor = tensor[..., 0]
        found[name] = tensor
    return found


def convert_transformer(tensors: dict[str, Tensor], config: Config, changes: Mapping[str, Any]) -> Checkpoint:
    """Convert a Particle Transformer; the weights determine its variant."""
    sections = _sections(tensors, config, changes)
    note = (
        "the weights do not show whether the last pair layer has an activation; assumed yes, as in the "
        "published models (use_pre_activation_pair=False). If not: --tokens.pair_last false"
    )
    unsure = sections["tokens"]["pair_features"] and "tokens.pair_last" not in changes
    for name in [name for name in tensors if name.endswith("c_attn")]:
        tensors[name] = tensors[name][:, None]
    classes = class_names(len(tensors["fc.0.weight"]) if "fc.0.weight" in tensors else 0)
    weights = from_theirs(_transformer_links(tensors, sections), tensors, config)
    named = sort_classes(weights, HEAD, classes)
    width = len(weights["entrance.embedding.norm.weight"])
    return Checkpoint(sections, weights, named, classes, HEAD, width, [note] if unsure else [])


def _sections(tensors: Mapping[str, Tensor], config: Config, changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    dim, first = tensors["cls_token"].shape[-1], "blocks.0."
    block = {name.removeprefix(first): tensor for name, tensor in tensors.items() if name.startswith(first)}
    named = [(name, tensor) for name, tensor in tensors.items() if name.startswith("pair_embed.embed.")]
    pairs = sorted((int(name.split(".")[2]), len(tensor)) for name, tensor in named if tensor.dim() == 2)
    inputs = len(tensors["pair_embed.embed.0.weight"]) if pairs else 0
    if any(name.startswith("pair_embed.fts_embed") for name in tensors):
        raise config.error(f"{config.where} has extra pair inputs (pair_embed.fts_embed), which are not supported")
    if inputs not in PAIR_FEATURES_BY_COUNT:
        known = f"only 0, 1 (ln_delta), or the first 3 or 4 of {', '.join(PAIR_FEATURES)} are supported"
        raise config.error(f"{config.where} has {inputs} pair features; {known}")
    norm = "layer" if "pre_attn_norm.bias" in block else "rms"
    heads = len(block["c_attn"]) if "c_attn" in block else pairs[-1][1] if pairs else 8
    layers = [f"embed.embed.{i}.weight" for i in (1, 4, 7, 10, 13) if f"embed.embed.{i}.weight" in tensors]
    tokens = {
        "kind": "particles",
        "features": feature_set(len(tensors["embed.input_bn.weight"]), config, changes),
        "widths": [len(tensors[name]) for name in layers[:-1]],
        "pair_features": PAIR_FEATURES_BY_COUNT[inputs],
    }
    if pairs:
        tokens |= {"pair_widths": [width for _, width in pairs[:-1]], "pair_bias": "pair_embed.embed.1.bias" in tensors}
    model = {
        "kind": "encoder",
        "dim": dim,
        "depth": count_numbered(tensors, "blocks."),
        "heads": heads,
        "mlp_ratio": len(block["fc1.weight"]) / dim,
        "activation": "swiglu" if "fc1_g.weight" in block else "gelu",
        "norm": norm,
        "norm_epsilon": EPSILON if norm == "rms" else None,
        "last_norm": False,
        "bias": "attn.in_proj.bias" in block,
        "extras": [extra for name, extra in BLOCK_EXTRAS.items() if name in block],
        "position": "none",
        "pool": "class_attention",
        "class_depth": count_numbered(tensors, "cls_blocks."),
        "class_query": "raw",
        "init": "moco",
        "dropout": 0.0 if norm == "rms" else 0.1,
        "embedding_dropout": 0.0,
        "drop_path": 0.1 if norm == "rms" else 0.0,
    }
    return {"tokens": tokens, "model": model}


def feature_set(count: int, config: Config, changes: Mapping[str, Any]) -> Any:
    """Feature set: `tokens.features` in `changes`, or the set with `count` features."""
    if "tokens.features" in changes:
        return changes["tokens.features"]
    if count not in FEATURE_SETS_BY_COUNT:
        sets = ", ".join(f"{size} ({name})" for size, name in FEATURE_SETS_BY_COUNT.items())
        hint = "Name the features: --tokens.features [...]"
        message = f"{config.where} has {count} features, but the feature sets have {sets}"
        raise config.error(message, hint).with_fields(key="tokens.features")
    return FEATURE_SETS_BY_COUNT[count]


def count_numbered(tensors: Mapping[str, Tensor], prefix: str) -> int:
    """Number of numbered parts of a model, such as `blocks.0`, `blocks.1`, ...

    prefix   names of the weights up to the number: `blocks.`
    """
    return len({name.removeprefix(prefix).partition(".")[0] for name in tensors if name.startswith(prefix)})


def class_names(number: int) -> list[str]:
    """Names of the classes: the ten names of JetClass, or else numbers."""
    return list(CLASSES) if number == len(CLASSES) else [str(i) for i in range(number)]


def _transformer_links(tensors: Mapping[str, Tensor], sections: Mapping[str, Any]) -> list[WeightMap]:
    tokens, model = sections["tokens"], sections["model"]
    links = [WeightMap("pooling.token", ("cls_token",))]
    links += layer("entrance.embedding.norm", "embed.input_bn", suffixes=BATCH_NORM)
    for i in range(len(tokens["widths"]) + 1):
        links += _layer(f"entrance.embedding.norms.{i}", f"embed.embed.{3 * i}", tensors=tensors)
        links += _layer(f"entrance.embedding.layers.{i}", f"embed.embed.{3 * i + 1}", tensors=tensors)
    if tokens["pair_features"]:
        pairs = "entrance.pairs.embedding"
        links += layer(f"{pairs}.norm", "pair_embed.embed.0", suffixes=BATCH_NORM)
        for i in range(len(tokens["pair_widths"]) + 1):
            links += _layer(f"{pairs}.layers.{i}", f"pair_embed.embed.{3 * i + 1}", tensors=tensors)
            links += layer(f"{pairs}.norms.{i}", f"pair_embed.embed.{3 * i + 2}", suffixes=BATCH_NORM)
    for i in range(model["depth"]):
        links += _block_links(f"trunk.blocks.{i}", f"blocks.{i}", tensors)
    for i in range(model["class_depth"]):
        links += _block_links(f"pooling.blocks.{i}.block", f"cls_blocks.{i}", tensors)
    return [*links, *_layer("pooling.norm", "norm", tensors=tensors), *_layer(HEAD, "fc.0", tensors=tensors)]


def _block_links(ours: str, theirs: str, tensors: Mapping[str, Tensor]) -> list[WeightMap]:
    up = [f"{theirs}.{name}" for name in ("fc1_g", "fc1") if f"{theirs}.{name}.weight" in tensors or name == "fc1"]
    links = _layer(f"{ours}.mlp.up", *up, tensors=tensors)
    for own, name in BLOCK_LAYERS.items():
        if f"{theirs}.{name}.weight" in tensors or not name.startswith("post_"):
            links += _layer(f"{ours}.{own}", f"{theirs}.{name}", tensors=tensors)
    scales = {own: f"{theirs}.{name}" for own, name in BLOCK_SCALES.items() if f"{theirs}.{name}" in tensors}
    return links + [WeightMap(f"{ours}.{own}", (name,)) for own, name in scales.items()]


def _layer(ours: str, *theirs: str, tensors: Mapping[str, Tensor]) -> list[WeightMap]:
    """Weight map of a linear layer or norm, with the bias in the checkpoint, if any."""
    return layer(ours, *theirs, suffixes=LAYER if f"{theirs[-1]}.bias" in tensors else WEIGHT)


def convert_particlenet(tensors: dict[str, Tensor], config: Config, changes: Mapping[str, Any]) -> Checkpoint:
    """Convert a ParticleNet (arXiv 1902.08570); a fusion block is not supported."""
    blocks = count_numbered(tensors, "edge_convs.")
    widths = [len(tensors[f"edge_convs.{i}.convs.0.weight"]) for i in range(blocks)]
    depths = {count_numbered(tensors, f"edge_convs.{i}.convs.") for i in range(blocks)}
    hidden = [len(tensors[f"fc.{i}.0.weight"]) for i in range(count_numbered(tensors, "fc.") - 1)]
    for key, right in {
        "use_fusion=False": not any(name.startswith("fusion_block.") for name in tensors),
        "use_fts_bn=True": "bn_fts.weight" in tensors,
        f"{LAYERS_PER_BLOCK} layers in a block": depths == {LAYERS_PER_BLOCK},
        "a hidden layer in its head": hidden,
    }.items():
        if not right:
            raise config.error(f"the ParticleNet in {config.where} must have {key}")
    features = feature_set(len(tensors["bn_fts.weight"]), config, changes)
    sections = {
        "tokens": {"kind": "particles", "features": features, "embed": "features"},
        "model": {"kind": "encoder", "trunk": "edge_conv", "dim": widths[-1], "depth": blocks, "widths": widths}
        | {"neighbours": 16, "pool": "mean"},
        "objective": {"kind": "classify", "hidden": hidden[0] if len(hidden) == 1 else hidden}
        | {"activation": "relu", "dropout": 0.1},
    }
    last = len(hidden) - 1  # our head ends with the last hidden layer and the output layer
    head = f"heads.class.layer.{3 * last}" if last else "heads.class.layer"
    links = _edge_conv_links(tensors, blocks)
    links += [*layer(f"{head}.up", f"fc.{last}.0"), *layer(f"{head}.down", f"fc.{last + 1}")]
    for i in range(last):
        links += layer(f"heads.class.layer.{3 * i}", f"fc.{i}.0")
    weights = from_theirs(links, tensors, config)
    note = (
        "the weights do not show the number of neighbours; assumed 16, as in the published models. For another "
        "number: --model.neighbours"
    )
    classes, notes = class_names(len(tensors[f"fc.{last + 1}.weight"])), [] if "model.neighbours" in changes else [note]
    named = sort_classes(weights, f"{head}.down", classes)
    return Checkpoint(sections, weights, named, classes, f"{head}.down", len(weights["trunk.input_norm.weight"]), notes)


def _edge_conv_links(tensors: Mapping[str, Tensor], blocks: int) -> list[WeightMap]:
    links = layer("trunk.input_norm", "bn_fts", suffixes=BATCH_NORM)
    for i in range(blocks):
        ours, theirs = f"trunk.blocks.{i}", f"edge_convs.{i}"
        for j in range(LAYERS_PER_BLOCK):
            links += layer(f"{ours}.layers.{j}", f"{theirs}.convs.{j}", suffixes=WEIGHT)
            links += layer(f"{ours}.norms.{j}", f"{theirs}.bns.{j}", suffixes=BATCH_NORM)
        if f"{theirs}.sc.weight" in tensors:  # only if the width changes
            links += layer(f"{ours}.change", f"{theirs}.sc", suffixes=WEIGHT)
            links += layer(f"{ours}.change_norm", f"{theirs}.sc_bn", suffixes=BATCH_NORM)
    return links


def import_weaver(path: Path, changes: Mapping[str, Any] | None = None) -> Imported:
    """Import a weaver checkpoint as a run, with a recipe for files like JetClass."""
    found = read_checkpoint(path, changes)
    data: dict[str, Any] = {"kind": "events"}
    named = any(key.split(".")[:2] == ["data", "classes"] for key in changes or {})
    if set(found.classes) == set(CLASSES) and not named:
        data["classes"] = {name: f"label_{name}" for name in CLASSES}
    sections = {"data": data, "objective": {"kind": "classify"}, **found.sections}
    recipe = imported_recipe(path.stem, "Imported from weaver.", sections, changes)
    objective = {"classes": found.classes, "counts": [1] * len(found.classes)}
    state = {"tokens": {"tokens": {}}, "objective": objective}
    return Imported(
        path.stem,
        recipe,
        found.weights,
        state,
        {"model_type": "weaver"},
        found.notes,
        check=partial(check_features, width=found.features, path=path),
        head=found.head,
        outputs=found.outputs,
    )


def check_features(assembly: Assembly, width: int, path: Path) -> None:
    """Refuse tokens with another number of features than the weights."""
    (tokens,) = assembly.tokens.values()
    assert isinstance(tokens, Particles)
    if (count := len(tokens.feature_list)) != width:
        sets = ", ".join(f"{size} ({name})" for size, name in FEATURE_SETS_BY_COUNT.items())
        message = f"the weights of {path} need {width} features, but tokens.features has {count}"
        raise UserError(message, hint=f"The feature sets have {sets}.", key="tokens.features", file=path)


IMPORTER = Importer(recognises, lambda source, run, changes: import_weaver(source, changes))
