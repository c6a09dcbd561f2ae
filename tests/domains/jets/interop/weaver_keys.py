"""Checkpoints with the names and shapes of weaver's Particle Transformer, and numbers that follow from the names."""

import zlib

import numpy as np
import torch

from sciformer.assembly import Assembly
from sciformer.domains.jets.simulate.decays import CLASSES
from sciformer.interop.importing import imported_recipe
from sciformer.training.weights import load_into


def sections(found):
    return {"data": {"kind": "arrays"}, "objective": {"kind": "classify"}, **found.sections}


def network(found, **changes):
    """The network of a checkpoint with other options, the order of its classes in weaver, and its assembly."""
    recipe = imported_recipe("a test", "", sections(found), {f"model.{key}": value for key, value in changes.items()})
    state = {"classes": found.classes, "counts": [1] * len(found.classes)}
    assembly = Assembly.from_state(recipe, {"tokens": {"tokens": {}}, "objective": state})
    built = assembly.network().eval()
    load_into(built, found.weights, lambda theirs, ours: theirs, "a test")
    return built, [found.classes.index(name) for name in CLASSES], assembly


@torch.no_grad()
def logits(model, view):
    return model.heads["class"](model.pool(model.encode(view)))


def made(shapes):
    """A state dict: each tensor's numbers depend on its name and shape alone."""
    return {name: torch.from_numpy(number(name, shape)) for name, shape in shapes.items()}


def number(name, shape):
    n = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    if name.endswith("num_batches_tracked"):
        return np.zeros((), np.int64)
    if name.endswith("running_var"):
        n = 1 + 0.1 * np.abs(n)
    elif name.endswith(("running_mean", "bias")):
        n = 0.1 * n
    elif name.endswith("weight") and len(shape) >= 2:
        n = n / np.sqrt(np.prod(shape[1:]))
    else:
        n = 0.02 * n if name.endswith("cls_token") else 1 + 0.1 * n
    return n.astype(np.float32)


def norm(name, width):
    shapes = {f"{name}.{part}": [width] for part in ("weight", "bias", "running_mean", "running_var")}
    return {**shapes, f"{name}.num_batches_tracked": []}


def layer(name, rows, columns=None, bias=True):
    weight = {f"{name}.weight": [rows] if columns is None else [rows, *columns]}
    return {**weight, **({f"{name}.bias": [rows]} if bias else {})}


def shapes(inputs=17, widths=(16, 32, 16), pair_widths=(8, 8), heads=4, depth=2, asking=1, classes=10, version=1):
    """Names and shapes, as weaver-core 0.5 has them."""
    dim, bias = widths[-1], version < 3
    found = {"cls_token": [1, 1, dim], **norm("embed.input_bn", inputs)}
    for i, (a, b) in enumerate(zip((inputs, *widths), widths)):
        found |= layer(f"embed.embed.{3 * i}", a) | layer(f"embed.embed.{3 * i + 1}", b, [a])
    if pair_widths is not None:
        found |= norm("pair_embed.embed.0", 4)
        for i, (a, b) in enumerate(zip((4, *pair_widths), (*pair_widths, heads))):
            found |= layer(f"pair_embed.embed.{3 * i + 1}", b, [a, 1], bias) | norm(f"pair_embed.embed.{3 * i + 2}", b)
    for name in [f"blocks.{i}" for i in range(depth)] + [f"cls_blocks.{i}" for i in range(asking)]:
        found |= layer(f"{name}.attn.in_proj", 3 * dim, [dim], bias) | layer(f"{name}.attn.out_proj", dim, [dim], bias)
        found |= layer(f"{name}.fc1", 4 * dim, [dim], bias) | layer(f"{name}.fc2", dim, [4 * dim], bias)
        found |= layer(f"{name}.pre_attn_norm", dim, bias=bias) | layer(f"{name}.pre_fc_norm", dim, bias=bias)
        if version > 1:
            found |= layer(f"{name}.fc1_g", 4 * dim, [dim], bias)
        else:
            found |= layer(f"{name}.post_attn_norm", dim) | layer(f"{name}.post_fc_norm", 4 * dim)
            found |= {f"{name}.c_attn": [heads], f"{name}.w_resid": [dim]}
    return found | layer("norm", dim, bias=bias) | layer("fc.0", classes, [dim])
