"""The benchmarks of images: idx files, few labels, and rows of what models look at."""

import numpy as np

import images_data as data
import images_insight as insight
from tests.domains.images.reader.examples import idx


def test_mnist_is_divided_once_and_a_few_labels_add_up(tmp_path):
    rng = np.random.default_rng(0)
    for name, count in (("train", 360), ("t10k", 20)):
        idx(tmp_path / f"{name}-labels-idx1-ubyte", np.arange(count) % 3)
        images = rng.integers(0, 256, (count, 4, 5))
        images[:, 0, :2] = np.stack([np.arange(count) // 256, np.arange(count) % 256], 1)
        idx(tmp_path / f"{name}-images-idx3-ubyte.gz", images)
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
