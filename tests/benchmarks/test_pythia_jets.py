"""The plugin that simulates jets with Pythia: what is missing is named; where it is installed, jets are right."""

import importlib.util

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.data.source import pieces
from sciformer.domains.jets.simulate.decays import CLASSES
from sciformer.recipe import Recipe
from sciformer.recipe.plugin import load
from sciformer.recipe.registry import find
from tests.errors import refuses
from tests.paths import ROOT

PLUGIN = ROOT / "benchmarks" / "pythia_jets.py"
pytestmark = pytest.mark.usefixtures("own_plugins")


def test_packages_that_are_missing_are_named_with_their_pip_line(tmp_path, here, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "pythia8mc", None)
    assert main(["simulate", "pythia_jets", "a.root", "--plugin", str(PLUGIN)]) == 2
    assert "pip install --only-binary :all: pythia8mc fastjet" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_training_is_refused():
    load(PLUGIN)
    with refuses("pythia_jets", key="data.kind", hint="sciformer simulate pythia_jets"):
        Recipe.load("jets/pfn", {"data.kind": "pythia_jets"}).data.open()


@pytest.mark.skipif(not all(map(importlib.util.find_spec, ("pythia8mc", "fastjet"))), reason="no Pythia installed")
def test_jets_of_pythia(tmp_path):
    path = tmp_path / "a.root"
    line = ["simulate", "pythia_jets", str(path), "--number", "20", "--seed", "1", "--plugin", str(PLUGIN)]
    assert main(line) == 0
    section = find("simulation", "pythia_jets")().want(["part_px", "jet_pt", "jet_sdmass"], ["label"])
    found = next(pieces(section.read([path])))
    assert {name: np.count_nonzero(found["label"] == name) for name in CLASSES} == dict.fromkeys(CLASSES, 2)
    assert ((found["jet_pt"] >= 500) & (found["jet_pt"] <= 1000)).all()
    assert found["part_px"].lengths.min() > 1
    heavy = np.isin(found["label"], ["Tbqq", "Hcc", "Hgg"])
    assert np.median(found["jet_sdmass"][heavy]) > 60
