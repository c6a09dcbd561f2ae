"""The comparison with the official Particle Transformer counts right, and both sides are the same network."""

import argparse

import pytest
import torch

import jets_sides
import jets_speed
from tests.benchmarks.test_results import KEYS


@pytest.fixture
def options(versions):
    return argparse.Namespace(part="train", variant="", processes=2, repeats=2, steps=4, peer="weaver")


def test_ratios_are_their_time_over_ours(options):
    sample = {"ours": [1.0, 2.0], "official": [6.0, 8.0], "jets": [2048.0], "difference": [0.0]}
    sample |= {"difference_working": [0.01], "ours MiB": [100.0], "official MiB": [400.0]}
    found = {row["id"]: row for row in jets_speed.rows([sample] * 2, options, "cpu")}
    assert found["part_train_gpu.ratio_official"]["value"] == 5
    assert found["part_train_gpu.ratio_official_p10"]["value"] == pytest.approx(6.2 / 1.5, abs=1e-3)
    assert found["part_train_gpu.memory_ratio"]["value"] == 0.25
    assert found["part_train_gpu.memory_ratio"]["better"] == "lower"
    assert found["part_train_gpu.jets_per_s"]["value"] == 1536
    assert all(row.keys() >= KEYS for row in found.values())
    options.part = "train-cpu"
    found = {row["id"]: row for row in jets_speed.rows([sample], options, "cpu")}
    assert found["part_train_cpu.ratio_official"]["bar"] == 1.2


def test_both_sides_are_one_network_and_learn():
    pytest.importorskip("weaver")
    batches = [jets_sides.jets(4, seed) for seed in range(2)]
    torch.manual_seed(0)
    model = jets_sides.official(jets_sides.TINY)
    ours, theirs = jets_sides.Ours(model, "cpu", batches, {}), jets_sides.Official(model, "cpu", batches)
    assert jets_sides.difference(theirs, ours, torch.float64, "cpu") < 1e-6
    layers = {ours: ours.step.model.trunk.blocks[0].mlp.up.weight, theirs: theirs.model.blocks[0].fc1.weight}
    for side, weight in layers.items():
        before = weight.detach().clone()
        side.train(2)
        assert not torch.equal(before, weight)
        side.infer(1)
