"""The comparison of speed counts right, and its nanoGPT is the network that ours is compared with."""

import argparse

import pytest
import torch

pytest.importorskip("transformers")

import decoding
import nanogpt
import sides
import training
from sciformer.assembly import Assembly
from sciformer.data.batch import StreamView
from sciformer.objectives.base import Step
from tests.benchmarks.test_results import KEYS


def options(part):
    return argparse.Namespace(part=part, variant="", processes=2)


def test_ratios_are_their_time_over_ours():
    sample = {"ours": [2.0, 4.0], "nanogpt": [3.0, 5.0], "hf": [4.0, 8.0], "tokens": [100.0], "flops": [1e15]}
    sample["product"] = [10 * 2 * 8192**3 / 1e15]
    found = {row["id"]: row for row in training.train_rows([sample] * 2, options("train"), "cpu")}
    assert found["gpt124m_train.ratio_nanogpt"]["value"] == pytest.approx(1.375)
    assert found["gpt124m_train.ratio_hf"]["value"] == 2
    assert found["gpt124m_train.tokens_per_s"]["value"] == pytest.approx(37.5, abs=1)
    assert found["gpt124m_train.ceiling_share"]["value"] == pytest.approx(0.375)
    small = {"small ours": [2.0], "small nanogpt": [1.0], "large ours": [1.0], "large nanogpt": [1.5]}
    found = {row["id"]: row for row in training.train_cpu_rows([small], options("train-cpu"), "cpu")}
    assert found["gpt_train_cpu.ratio_nanogpt"]["value"] == 0.5
    assert found["gpt_train_cpu.large.ratio_nanogpt"]["value"] == 1.5


def test_decoding_is_counted_by_token_and_against_the_bound():
    sample = {"b1 ours": [0.5], "b1 hf": [5.0], "b32 ours": [1.0], "b32 hf": [4.0], "new": [100.0]}
    sample |= {"bytes": [2e9], "bandwidth": [4e12, 4e12]}
    found = {row["id"]: row for row in decoding.decode_rows([sample] * 3, options("decode"), "cpu")}
    assert found["decode_b1.ratio_hf"]["value"] == 10
    assert found["decode_b32.ratio_hf"]["value"] == 4
    assert found["decode_b1.ms_a_token"]["value"] == 5
    assert found["decode_b1.ms_a_token"]["better"] == "lower"
    assert found["decode_b1.bound_share"]["value"] == pytest.approx(0.1)  # 0.5 ms of 5 ms
    assert all(row.keys() >= KEYS and "transformers" in row["versions"] for row in found.values())


def test_their_network_is_ours():
    sizes = (66, 16, 32, 2, 4)
    path, ids = sides.text(2000, 64)
    assembly = Assembly.open(sides.recipe_of(path, sizes, 2, "cpu", {}))
    ours, theirs = Step(assembly.network(), assembly.objective), nanogpt.GPT(*sizes)
    assert sum(w.numel() for w in ours.parameters()) == sum(w.numel() for w in theirs.parameters())
    names = {
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
        "attention_norm": "ln_1",
        "mlp_norm": "ln_2",
    }
    given = dict(theirs.named_parameters())
    pairs = {"trunk.position.table": "wpe.weight", "entrance.embedding.table.weight": "wte.weight"}
    pairs |= {"trunk.norm.weight": "ln_f.weight"}
    pairs |= {f"trunk.blocks.{i}.{a}.weight": f"h.{i}.{b}.weight" for i in range(2) for a, b in names.items()}
    own = dict(ours.model.named_parameters())
    assert sorted(own) == sorted(pairs)
    with torch.no_grad():
        for name, other in pairs.items():
            own[name].copy_(given[other])
    x, y = nanogpt.batches(ids, 16, 2, "cpu")()
    hidden = ours.model.decode(StreamView({"ids": x}, None)).flatten(0, 1)
    found = ours.model.readout.total(hidden, {"ids": y.flatten()}) / y.numel()
    torch.testing.assert_close(found, theirs(x, y)[1])
