"""The benchmarks of images: idx files, few labels, rows that count right, and both sides of the race as one network."""

import argparse
import gzip

import numpy as np
import pytest
import torch

import images_data as data
import images_insight as insight
import images_sides as sides
import images_speed as speed
from tests.benchmarks.test_results import KEYS


def write_idx(path, array, packed=False):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    raw = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(raw) if packed else raw)


def test_mnist_is_divided_once_and_a_few_labels_add_up(tmp_path):
    rng = np.random.default_rng(0)
    for name, count in (("train", 360), ("t10k", 20)):
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte", np.arange(count) % 3)
        images = rng.integers(0, 256, (count, 4, 5))
        images[:, 0, :2] = np.stack([np.arange(count) // 256, np.arange(count) % 256], 1)
        write_idx(tmp_path / f"{name}-images-idx3-ubyte.gz", images, packed=True)
    data.mnist(tmp_path, tmp_path / "out", [0, 1])
    found = {path.stem: np.load(path) for path in (tmp_path / "out").iterdir()}
    ids = {name: {(int(a), int(b)) for a, b in one["image"][:, 0, :2]} for name, one in found.items()}
    assert {name: len(ids[name]) for name in ("train", "valid", "test")} == {"train": 300, "valid": 60, "test": 20}
    assert not ids["train"] & ids["valid"]
    for part in ("train", "valid"):
        for seed in (0, 1):
            assert ids[f"{part}-10-{seed}"] <= ids[f"{part}-100-{seed}"] <= ids[part]
            assert np.bincount(found[f"{part}-10-{seed}"]["label"]).tolist() == [10] * 3
    assert ids["train-10-0"] != ids["train-10-1"]


@pytest.fixture
def options(versions):
    common = {"part": "train", "variant": "", "peer": "script", "processes": 2, "repeats": 2, "steps": 4}
    return argparse.Namespace(**common, batch=256, workers=2)


def test_ratios_are_their_time_over_ours(options):
    sample = {"ours": [1.0, 2.0], "timm": [1.5, 2.0], "images": [1024.0], "difference": [0.0, 0.01]}
    sample |= {"ours MiB": [100.0], "timm MiB": [200.0]}
    found = {row["id"]: row for row in speed.rows([sample] * 2, options, "cpu")}
    assert found["vit_b16_train.ratio_timm"]["value"] == 1.25
    assert found["vit_b16_train.ratio_timm"]["bar"] == 1.0
    assert found["vit_b16_train.images_per_s"]["value"] == 768
    assert found["vit_b16_train.memory_ratio"]["value"] == 0.5
    assert all(row.keys() >= KEYS for row in found.values())
    options.part = "loop"
    (row,) = speed.rows([{"ours": [2.0], "images": [1024.0]}], options, "cpu")
    assert (row["id"], row["value"], row["workers"]) == ("vit_b16_loop.images_per_s", 512, 2)


def test_rows_of_what_models_look_at():
    common = {"parameters": 10, "steps": 3, "training_s": 1.0, "device": "cpu", "valid": {"accuracy": 0.9}}
    common |= {"on": "mnist", "places": 0.02}
    looks = {"samples": 8, "removed": True, "reach": [[1.0]], "uniform_reach": 2.0, "accuracy": 0.8}
    looks |= {"positions": -0.6, "depth": 0.7, "faithfulness": {"attention": [1.5, 0.1], "rollout": [1.1, 0.1]}}
    found = {row["id"]: row for row in insight.rows("looks", [common | looks | {"model": "vit"}] * 3, 1e-3)}
    assert {name: row["value"] for name, row in found.items()} == {
        "insight_mnist.position_similarity_correlation": -0.6,
        "insight_mnist.attention_distance_depth_correlation": 0.7,
        "insight_mnist.faithfulness_ratio": 1.5,
    }
    assert {row["command"] for row in found.values()} == {
        "python benchmarks/images_insight.py looks --on mnist --places 0.02 --rate 0.001"
    }
    counts = {"first": 6, "second": 2, "neither": 1, "classes": {}}
    (row,) = insight.rows("cues", [common | {"model": "cnn", "bias": 0.75, "counts": counts}] * 3, 1e-3)
    assert (row["id"], row["value"]) == ("insight.shape_bias.cnn", 0.75)
    assert row["answers"] == {"shape": 18, "texture": 6, "neither": 3}


class Theirs(torch.nn.Module):
    """The names and shapes of timm's weights alone."""

    def __init__(self, sizes):
        super().__init__()
        dim, side = sizes["dim"], sizes["side"] // sizes["patch"]
        shapes = {"cls_token": (1, 1, dim), "pos_embed": (1, side**2 + 1, dim)}
        layers = {"patch_embed.proj": (dim, 3, sizes["patch"], sizes["patch"]), "norm": (dim,)}
        layers["head"] = (sizes["classes"], dim)
        for i in range(sizes["depth"]):
            inner = {"norm1": (dim,), "norm2": (dim,), "attn.qkv": (3 * dim, dim), "attn.proj": (dim, dim)}
            inner |= {"mlp.fc1": (4 * dim, dim), "mlp.fc2": (dim, 4 * dim)}
            layers |= {f"blocks.{i}.{name}": shape for name, shape in inner.items()}
        for name, shape in layers.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        rng = torch.Generator().manual_seed(0)
        self.tensors = {name: 0.1 * torch.randn(shape, generator=rng) for name, shape in shapes.items()}

    def state_dict(self):
        return self.tensors


def test_our_side_takes_their_weights_and_learns():
    batches = [sides.images(4, sides.TINY, seed) for seed in range(2)]
    ours = sides.Ours(Theirs(sides.TINY), sides.TINY, "cpu", batches, {})
    weight = ours.step.model.trunk.blocks[0].mlp.up.weight
    before = weight.detach().clone()
    ours.settle()
    ours.train(2)
    assert not torch.equal(before, weight)


def test_both_sides_are_one_network():
    pytest.importorskip("timm")
    batches = [sides.images(4, sides.TINY, seed) for seed in range(2)]
    torch.manual_seed(0)
    model = sides.timm(sides.TINY)
    ours, theirs = sides.Ours(model, sides.TINY, "cpu", batches, {}), sides.Timm(model, "cpu", batches, None)
    assert sides.difference(theirs, ours, torch.float64, "cpu") < 1e-6
    theirs.train(1)
