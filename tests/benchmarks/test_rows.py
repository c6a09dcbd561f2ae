"""Rows of the benchmarks of speed: every figure follows from the times of the processes."""

import argparse
import importlib
import importlib.metadata

import pytest

from tests.benchmarks.test_results import KEYS

IMAGES = {"ours": [1.0, 2.0], "timm": [1.5, 2.0], "images": [1024.0], "difference": [0.0, 0.01]}
IMAGES |= {"ours MiB": [100.0], "timm MiB": [200.0]}
JETS = {"ours": [1.0, 2.0], "official": [6.0, 8.0], "jets": [2048.0], "difference": [0.0]}
JETS |= {"difference_working": [0.01], "ours MiB": [100.0], "official MiB": [400.0]}
LOADING = {"ours.0": [1e-4, 1e-4], "ours.1": [2e-4, 2e-4], "weaver.0": [4e-4, 4e-4], "weaver.2": [3e-4, 3e-4]}
CURVES = {"curves": [8.0], "difference": [0.0], "tokens": [100.0]}
CURVES = {
    "ztf": [{"ragged": [1.0, 1.0], "padded": [3.0, 3.0], **CURVES}],
    "lognormal": [{"ragged": [1.0, 2.0], "padded": [2.0, 4.0], **CURVES}],
}
TEXT = {"ours": [2.0, 4.0], "nanogpt": [3.0, 5.0], "hf": [4.0, 8.0], "tokens": [100.0], "flops": [1e15]}
TEXT |= {"product": [10 * 2 * 8192**3 / 1e15]}
SMALL = {"small ours": [2.0], "small nanogpt": [1.0], "large ours": [1.0], "large nanogpt": [1.5]}
DECODING = {"b1 ours": [0.5], "b1 hf": [5.0], "b32 ours": [1.0], "b32 hf": [4.0], "new": [100.0]}
DECODING |= {"bytes": [2e9], "bandwidth": [4e12, 4e12]}


def options(part="", peer="", steps=4):
    common = {"variant": "", "processes": 2, "repeats": 2, "batch": 256, "workers": 2, "number": 1000}
    return argparse.Namespace(
        **common, recipe="r", classify=False, whole=False, tiny=False, part=part, peer=peer, steps=steps
    )


CASES = {
    "images_speed.rows": [
        (([IMAGES] * 2, options("train", "script"), "cpu"), {
            "vit_b16_train.ratio_timm": {"value": 1.25, "bar": 1.05},
            "vit_b16_train.images_per_s": {"value": 768},
            "vit_b16_train.memory_ratio": {"value": 0.5},
        }),
        (([{"ours": [2.0], "images": [1024.0]}], options("loop", "script"), "cpu"), {
            "vit_b16_loop.images_per_s": {"value": 512, "workers": 2},
        }),
    ],
    "jets_speed.rows": [
        (([JETS] * 2, options("train", "weaver"), "cpu"), {
            "part_train_gpu.ratio_official": {"value": 5},
            "part_train_gpu.ratio_official_p10": {"value": pytest.approx(6.2 / 1.5, abs=1e-3)},
            "part_train_gpu.memory_ratio": {"value": 0.25, "better": "lower"},
            "part_train_gpu.jets_per_s": {"value": 1536},
        }),
        (([JETS], options("train-cpu", "weaver"), "cpu"), {"part_train_cpu.ratio_official": {"bar": 1.2}}),
    ],
    "jets_loading.rows": [
        (([LOADING] * 2, options()), {  # the fastest way of each side
            "root_loading.ratio_weaver": {"value": 3.0},
            "root_loading.ours.jets_per_s": {"value": 10_000},
            "root_loading.weaver.jets_per_s": {"value": 3333},
        }),
    ],
    "lightcurves_speed.rows": [
        ((CURVES, "train-cpu", options(steps=1), 2), {  # the smaller ratio
            "ragged_train_cpu.ratio_padded": {"value": 2, "lengths": "lognormal", "processes": 2},
            "ragged_train_cpu.ztf.ragged_per_s": {"value": 8},
        }),
    ],
    "training.train_rows": [
        (([TEXT] * 2, options("train"), "cpu"), {
            "gpt124m_train.ratio_nanogpt": {"value": pytest.approx(1.375)},
            "gpt124m_train.ratio_hf": {"value": 2},
            "gpt124m_train.tokens_per_s": {"value": pytest.approx(37.5, abs=1)},
            "gpt124m_train.ceiling_share": {"value": pytest.approx(0.375)},
        }),
    ],
    "training.train_cpu_rows": [
        (([SMALL], options("train-cpu"), "cpu"), {
            "gpt_train_cpu.ratio_nanogpt": {"value": 0.5},
            "gpt_train_cpu.large.ratio_nanogpt": {"value": 1.5},
        }),
    ],
    "decoding.decode_rows": [
        (([DECODING] * 3, options("decode"), "cpu"), {
            "decode_b1.ratio_hf": {"value": 10},
            "decode_b32.ratio_hf": {"value": 4},
            "decode_b1.ms_a_token": {"value": 5, "better": "lower"},
            "decode_b1.bound_share": {"value": pytest.approx(0.1)},  # 0.5 ms of 5 ms
        }),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rows_follow_from_the_times(name, monkeypatch):
    script, _, function = name.partition(".")
    if script in ("training", "decoding"):
        pytest.importorskip("transformers")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1")
    for given, expected in CASES[name]:
        rows = getattr(importlib.import_module(script), function)(*given)
        found = {row["id"]: row for row in rows}
        for row, values in expected.items():
            assert {key: found[row][key] for key in values} == values
        assert all(row.keys() >= KEYS for row in rows)
        assert script != "jets_loading" or "ours 0, weaver 2" in rows[0]["settings"]
        assert script != "decoding" or all("transformers" in row["versions"] for row in rows)
