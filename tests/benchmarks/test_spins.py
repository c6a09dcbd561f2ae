"""Benchmarks of spins at a tiny size."""

import json

import pytest

import spins
import spins_table


def test_the_table_runs_and_is_resumed(tmp_path):
    words = ["table", "--tiny", "--jobs", "0", "--seeds", "1", "--cache", str(tmp_path / "cache")]
    words += ["--out", str(tmp_path / "out"), "--rows", str(tmp_path / "rows.json")]
    spins_table.SETTINGS, whole = {"periodic": spins_table.SETTINGS["periodic"]}, spins_table.SETTINGS
    spins_table.MODELS, models = {"vit": ""}, spins_table.MODELS
    spins_table.RATES, rates = (1e-3,), spins_table.RATES
    try:
        spins_table.main(words)
        first = json.loads((tmp_path / "rows.json").read_text())
        spins_table.main(words)
    finally:
        spins_table.SETTINGS, spins_table.MODELS, spins_table.RATES = whole, models, rates
    assert [row["id"] for row in first] == [
        f"ising_bc.periodic.vit.{way}.accuracy" for way in ("pretrained", "scratch")
    ]
    assert [row["value"] for row in first] == [row["value"] for row in json.loads((tmp_path / "rows.json").read_text())]
    assert all(0 <= row["value"] <= 1 for row in first)


def test_the_ceiling_is_measured(tmp_path):
    words = ["ceiling", "--number", "200", "--size", "16", "--settings", "periodic", "--cache", ""]
    spins_table.main([*words, "--rows", str(tmp_path / "rows.json")])
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["id"] == "ising_bc.periodic.ceiling.accuracy"
    assert 0.6 < row["value"] <= 1  # four intervals: chance is a quarter


def test_runs_become_rows():
    done = spins.work("chain8.40", 0, {"train.steps": 4, "train.evaluate_every": 4, "data.size": 6})
    other = {**done, "seed": 1, "scores": {**done["scores"], "energy": done["exact"] * 0.999}}
    (row,) = spins.rows_of([{**done, "name": "chain10.80"}, {**other, "name": "chain10.80"}])
    assert row["id"] == "wavefunction.chain10.80.relative_error"
    assert row["value"] == pytest.approx(0.001, rel=1e-2)
    assert row["best_of"] == len(row["all_seeds"]) == 2
    assert spins.first_step({"history": [[5, -0.5], [10, -0.9999]], "exact": -1.0}, 1e-3) == 10
