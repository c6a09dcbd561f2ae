"""Rivals on the same data: other trunks of the field, or the same recipe with one change."""

import json

import pytest

from sciformer.cli.main import main
from sciformer.comparison.compare import compare
from sciformer.comparison.rivals import rivals
from sciformer.comparison.statistics import section_differences
from sciformer.recipe import Recipe
from tests.errors import refuses
from tests.training.tiny import image_recipe, text_recipe


@pytest.fixture
def file(tmp_path, here):
    path = tmp_path / "mine.yaml"
    path.write_text(image_recipe(tmp_path, data__split__test=0.2, train__steps=2, train__batch=8).to_yaml())
    return path


def test_every_other_trunk_of_the_field_with_my_data_tokens_objective_and_training(file):
    mine, said = Recipe.load(file), []
    found = rivals(mine, said.append)
    trunks = [one.model.trunk for one in found]
    assert len({*trunks, "transformer"}) == len(trunks) + 1
    assert {"lstm", "convolution", "resnet2d"} <= {*trunks}
    assert section_differences({one.name: one for one in [mine, *found]}) == []
    for one in found:
        raw = {"tokens.embed": "none"} if one.model.trunk == "resnet2d" else {}  # the embedding is part of the model
        assert (one.data, one.tokens, one.train) == (mine.data, mine.change(raw).tokens, mine.train)
        assert one.model == Recipe.load(one.name).model
    with refuses(mine.name, key="--rivals"):
        rivals(mine.change({"model": {"kind": "masked_autoencoder"}, "objective": {"kind": "masked"}}))


def test_a_rival_of_text_keeps_its_kind_of_model(tmp_path):
    found = rivals(text_recipe(tmp_path))
    assert found
    assert {one.model.kind for one in found} == {"decoder"}


def test_a_change_is_a_rival_of_the_unchanged_recipe(file, capsys):
    line = ["compare", str(file), "--seeds", "1", "--run", "runs", "--model.trunk", "gru", "--train.steps", "3"]
    assert main(line) == 0
    kept = json.loads(file.with_name("runs").joinpath("comparison.json").read_text())
    assert [row["recipe"] for row in kept["rows"]] == ["mine", "mine-model.trunk=gru"]
    assert "differ in" not in capsys.readouterr().err
    recipes = [Recipe.load(file.with_name("runs") / row["recipe"] / "seed-0") for row in kept["rows"]]
    assert [one.model.trunk for one in recipes] == ["transformer", "gru"]
    assert [one.train.steps for one in recipes] == [3, 3]
    assert main(["compare", str(file), "--model.trunk", "transformer"]) == 2
    assert "already has this value" in capsys.readouterr().err
    assert main(["compare", str(file), str(file), "--rivals"]) == 2
    assert "--rivals" in capsys.readouterr().err


def test_differences_of_the_data_are_said_before_the_first_training(file, tmp_path):
    mine, said = Recipe.load(file), []
    other = mine.change({"data.split.seed": 3, "objective.plot_against": "label"})
    compare([mine, other], 1, tmp_path / "runs", report=False, show=False, log=said.append)
    assert "differ in data.split.seed: " in said[0]
    assert said[1].startswith("run 1 of 2")
    events = Recipe.from_dict(
        {"data": {"kind": "events", "files": ["a.npz"]}, "tokens": {"kind": "particles"}}
        | {"model": {"kind": "encoder"}, "objective": {"kind": "classify"}}
    )
    looked = events.change({"data.observers": ["mass"]})
    assert section_differences({"a": events, "b": looked}) == []
    assert section_differences({"a": events, "b": events.change({"data.select": "pt > 1"})}) != []
