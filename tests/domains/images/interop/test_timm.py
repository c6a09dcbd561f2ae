"""Vision transformers of timm, from files of weights and folders, against their forward pass written plainly."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

from sciformer.domains.images.interop.timm import UNSUPPORTED_PARTS
from sciformer.evaluation.embed import embed
from sciformer.interop import import_model
from tests.domains.images.interop.their_images import images, pixel_values
from tests.errors import refuses

DIM, DEPTH, HEADS, CLASSES = 24, 2, 3, 11
HALF = ((0.5,) * 3, (0.5,) * 3)


def block(prefix, dim, inner):
    """Shapes of the weights of a block."""
    layers = {"attn.qkv": (3 * dim, dim), "attn.proj": (dim, dim), "mlp.fc1": (inner, dim), "mlp.fc2": (dim, inner)}
    shapes = {f"{prefix}.{name}.weight": shape for name, shape in {**layers, "norm1": (dim,), "norm2": (dim,)}.items()}
    return shapes | {name.replace("weight", "bias"): shape[:1] for name, shape in shapes.items()}


def weights(places=5, extra=(), bias=True, head=True, patch=4, inner=40):
    """Random weights under the names of timm."""
    shapes = {"cls_token": (1, 1, DIM), "pos_embed": (1, places, DIM), "norm.weight": (DIM,), "norm.bias": (DIM,)}
    shapes |= {"patch_embed.proj.weight": (DIM, 3, patch, patch), "patch_embed.proj.bias": (DIM,)}
    for i in range(DEPTH):
        shapes |= block(f"blocks.{i}", DIM, inner) | {f"blocks.{i}.{name}": (DIM,) for name in extra}
    shapes |= {"head.weight": (CLASSES, DIM), "head.bias": (CLASSES,)} if head else {}
    generator = torch.Generator().manual_seed(0)
    return {
        name: 0.3 * torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
        if bias or not name.endswith("qkv.bias")
    }


def plain(w, pixels, heads=HEADS):
    """As `VisionTransformer.forward` of timm 1.0 has it: the class token, normalised."""
    x = F.conv2d(pixels, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=4).flatten(2).transpose(1, 2)
    first = w["cls_token"].expand(len(x), -1, -1)
    if w["pos_embed"].shape[1] == x.shape[1]:  # no_embed_class
        x = torch.cat([first, x + w["pos_embed"]], 1)
    else:
        x = torch.cat([first, x], 1) + w["pos_embed"]

    def norm(x, name):
        return F.layer_norm(x, (DIM,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    def linear(x, name):
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    for i in range(DEPTH):
        b = f"blocks.{i}"
        q, k, v = linear(norm(x, f"{b}.norm1"), f"{b}.attn.qkv").unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + w.get(f"{b}.ls1.gamma", 1) * linear(mixed, f"{b}.attn.proj")
        inner = F.gelu(linear(norm(x, f"{b}.norm2"), f"{b}.mlp.fc1"))
        x = x + w.get(f"{b}.ls2.gamma", 1) * linear(inner, f"{b}.mlp.fc2")
    return norm(x, "norm")[:, 0]


FORMS = {
    "as published.safetensors": {},
    "deit.pth": {"places": 4, "extra": ("ls1.gamma", "ls2.gamma"), "bias": False},
}


@pytest.mark.parametrize("name", FORMS)
def test_a_file_of_weights(name, tmp_path):
    made, said, path = weights(**FORMS[name]), [], tmp_path / name
    if path.suffix == ".pth":
        torch.save({"model": made, "epoch": 3}, path)
    else:
        safetensors.torch.save_file(made, path)
    with refuses("64", "24", key="model.heads", hint="--model.heads"):
        import_model(path, tmp_path / "run")
    run = import_model(path, tmp_path / "run", {"model.heads": HEADS}, said.append)
    pictures = images(3, 8, 8)
    expected = F.linear(plain(made, pixel_values(pictures, *HALF)), made["head.weight"], made["head.bias"]).softmax(-1)
    np.testing.assert_allclose(run.predict({"image": pictures})["probabilities"], expected, atol=1e-5)
    assert run.assembly.objective.classes == [str(i) for i in range(CLASSES)]
    assert any("(x - 127.5) / 127.5" in note for note in said)


def config(**changes):
    about = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "input_size": [3, 4, 8], "interpolation": "bicubic"}
    found = {"architecture": "vit_tiny_patch4_8", "num_classes": 11, "num_features": DIM, "global_pool": "token"}
    names = [f"class {i}" for i in reversed(range(CLASSES))]
    return found | {"label_names": names, "model_args": {"num_heads": HEADS}, "pretrained_cfg": about, **changes}


def folder(path, made, **changes):
    path.mkdir()
    safetensors.torch.save_file(made, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config(**changes)))
    return path


def test_a_folder_tells_size_scale_and_names(tmp_path):
    made = weights(places=3)
    run = import_model(folder(tmp_path / "theirs", made), tmp_path / "run")
    assert run.assembly.tokens["tokens"].shape == (4, 8, 3)
    pictures = images(3, 4, 8)
    vectors = plain(made, pixel_values(pictures, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)))
    expected = F.linear(vectors, made["head.weight"], made["head.bias"]).softmax(-1)
    names = sorted(f"class {i}" for i in range(CLASSES))
    assert run.assembly.objective.classes == names
    order = [CLASSES - 1 - int(name.split()[1]) for name in names]
    np.testing.assert_allclose(run.predict({"image": pictures})["probabilities"], expected[:, order], atol=1e-5)
    made = {name: tensor for name, tensor in made.items() if not name.startswith("head.")}
    run = import_model(folder(tmp_path / "headless", made), tmp_path / "other")
    np.testing.assert_allclose(embed(run, {"image": pictures}).vectors, vectors, atol=1e-5)


def test_a_masked_autoencoder_with_these_names(tmp_path):
    made, generator = weights(head=False), torch.Generator().manual_seed(1)
    shapes = {"mask_token": (1, 1, 16), "decoder_pos_embed": (1, 5, 16), "decoder_pred.weight": (48, 16)}
    shapes |= {"decoder_embed.weight": (16, DIM), "decoder_embed.bias": (16,), "decoder_pred.bias": (48,)}
    shapes |= {"decoder_norm.weight": (16,), "decoder_norm.bias": (16,)}
    shapes |= block("decoder_blocks.0", 16, round(40 / DIM * 16))
    made |= {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    torch.save({"model": made}, tmp_path / "mae.pth")
    run = import_model(tmp_path / "mae.pth", tmp_path / "run", {"model.heads": HEADS})
    model = run.recipe.model
    assert (model.kind, model.decoder_dim, model.decoder_depth) == ("masked_autoencoder", 16, 1)
    pictures = images(3, 8, 8)
    vectors = plain(made, pixel_values(pictures, *HALF))
    np.testing.assert_allclose(embed(run, {"image": pictures}).vectors, vectors, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["reg_token", "dist_token", "fc_norm.weight", "norm_pre.weight", "blocks.0.attn.q_norm.weight"]
)
def test_parts_that_no_model_here_has(name, tmp_path):
    safetensors.torch.save_file({**weights(), name: torch.zeros(DIM)}, tmp_path / "a.safetensors")
    what = UNSUPPORTED_PARTS.get(name, name)
    with refuses(name, what, file=tmp_path / "a.safetensors"):
        import_model(tmp_path / "a.safetensors", tmp_path / "run", {"model.heads": HEADS})


@pytest.mark.parametrize(
    ("changes", "mentions"),
    [
        ({"global_pool": "avg"}, ["`global_pool`", "config.json", "token", "avg"]),
        ({"architecture": "vit_base_quickgelu"}, ["`architecture: vit_base_quickgelu`"]),
        ({"model_args": {"act_layer": "quick_gelu"}}, ["`act_layer: quick_gelu`"]),
        ({"pretrained_cfg": {"mean": [0.5], "input_size": [3, 4, 8]}}, ["mean", "3", "[0.5]"]),
        ({"pretrained_cfg": {"input_size": [3, 8, 8]}}, ["4 or 5 ", "`pos_embed`", "3"]),
    ],
)
def test_folders_that_say_other_things(changes, mentions, tmp_path):
    path = folder(tmp_path / "theirs", weights(places=3), **changes)
    with refuses(*mentions, file=path / "config.json"):
        import_model(path, tmp_path / "run", {"model.heads": HEADS})


def test_files_of_something_else(tmp_path):
    safetensors.torch.save_file({"fc.weight": torch.zeros(2, 2)}, tmp_path / "a.safetensors")
    with refuses("fc.weight", file=tmp_path / "a.safetensors"):
        import_model(tmp_path / "a.safetensors", tmp_path / "run")
    with refuses(file=tmp_path / "b.safetensors"):
        import_model(tmp_path / "b.safetensors", tmp_path / "run")
    safetensors.torch.save_file(weights(places=7), tmp_path / "c.safetensors")
    with refuses("`pos_embed`", "7", file=tmp_path / "c.safetensors", hint="`input_size`"):
        import_model(tmp_path / "c.safetensors", tmp_path / "run")
