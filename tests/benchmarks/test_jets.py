"""The table of jets: which runs it asks for, and what it makes of them."""

import argparse
import json

import pytest

import jets
from jets import Tuning, median
from jets_tasks import changes_of


@pytest.fixture
def options(tmp_path):
    found = {"models": ["part", "pfn"], "sizes": ["100", "all"], "rates": [1e-3, 1e-2], "seeds": [0, 1, 2]}
    found |= {"tune": 0.25, "tiny": False, "number": 1000, "epochs": 1, "compile": False, "device": "", "workers": 0}
    return argparse.Namespace(**found, out=tmp_path, weights=None, pretrain_rate=1e-3, widen=0)


def result(task, accuracy):
    keys = ("part", "size", "model", "way", "rate", "seed", "share")
    found = {key: task[key] for key in keys} | {"valid": {"accuracy": accuracy}, "parameters": 5, "steps": 10}
    found |= {"flops": 1.0, "training_s": 2.0, "hardware": "GPU", "commit": "abc", "versions": {}}
    scores = {"accuracy": accuracy, "auc": accuracy, "rejection_30": 100 * accuracy, "rejection_50": 50.0}
    return found | ({"test": scores, "bounds": ["rejection_30"]} if task["share"] == 1 else {})


def test_a_share_of_the_updates_chooses_the_rate_and_all_of_them_are_judged(options):
    tuning = Tuning(options, "builtin")
    tasks = tuning.tasks()
    assert len(tasks) == 4
    assert {task["share"] for task in tasks.values()} == {0.25}
    assert changes_of(tasks["builtin-all-part-scratch-0.001-0-0.25"])["train.steps"] == 0  # of one update in all
    then = {}
    for name, task in tasks.items():
        then |= tuning.then(name, result(task, 0.5 if task["rate"] == 1e-2 else 0.4))
    assert sorted(then) == [
        f"builtin-all-{model}-scratch-0.01-{seed}" for model in ("part", "pfn") for seed in range(3)
    ]
    for name, task in list(then.items())[:-1]:  # one run is missing
        assert tuning.then(name, result(task, 0.6 + 0.01 * task["seed"])) == {}
    rows = {row["id"]: row for row in tuning.rows()}
    assert sorted(rows) == ["builtin10.part.accuracy", "builtin10.part.auc"]
    row = rows["builtin10.part.accuracy"]
    assert (row["value"], row["rate"], row["grid"]) == (0.61, 0.01, {"0.001": 0.4, "0.01": 0.5})
    assert (row["hardware"], row["commit"], row["tuned_on"]) == ("GPU", "abc", 0.25)
    assert row["command"].endswith("builtin --number 1000 --epochs 1 --tune 0.25")


def test_with_few_jets_all_updates_choose_and_known_rows_are_not_trained(options, tmp_path, monkeypatch):
    tasks = Tuning(options, "transfer").tasks()
    shares = {name: task["share"] for name, task in tasks.items()}
    assert shares["transfer-100-part-masked-0.001-0"] == 1
    assert shares["transfer-100-part-supervised-0.0001-0"] == 1  # a tenth of the rate, where it answers already
    assert "transfer-100-part-supervised-0.01-0" not in shares
    assert shares["transfer-all-part-masked-0.001-0-0.25"] == 0.25
    assert changes_of(tasks["transfer-all-part-masked-0.001-0-0.25"])["train.steps"] == 500
    assert changes_of(tasks["transfer-100-part-masked-0.001-0"])["train.steps"] == 300
    monkeypatch.setattr(jets, "RESULTS", tmp_path)
    assert any("all-part-scratch" in name for name in Tuning(options, "transfer").tasks())
    (tmp_path / "jets.json").write_text(json.dumps([{"id": "pythia10.part.accuracy", "value": 0.8}]))
    tuning = Tuning(options, "transfer")
    assert not any("all-part-scratch" in name for name in tuning.tasks())
    assert tuning.rows() == [{"id": "transfer.all.part.scratch.accuracy", "value": 0.8}]


def test_a_median_is_a_bound_only_where_the_middle_seed_is_one():
    def seeds(*found):
        return [{"test": {"r": value}, "bounds": ["r"] if bound else []} for value, bound in found]

    assert median(seeds((865, True), (865, True), (865, False)), "r") == (865, True)
    assert median(seeds((865, True), (865, False), (432.5, False)), "r") == (865, False)
    assert median(seeds((300, False), (100, False), (865, True)), "r") == (300, False)
    assert median(seeds((300, False), (100, False)), "r") == (100, False)
