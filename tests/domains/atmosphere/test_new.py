"""Recipes written from files train as they are."""

import pytest

from sciformer.domains.atmosphere.reader.files import release
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from sciformer.run import train
from tests.domains.atmosphere.maps import dataset, write
from tests.errors import refuses

TINY = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "train.steps": 2, "train.batch": 4, "train.warmup": 1}
TINY |= {"train.evaluate_every": 2, "train.device": "cpu"}


@pytest.fixture(autouse=True)
def _closed():
    yield
    release()


@pytest.mark.parametrize(
    ("maps", "steps", "streams"),
    [
        ({"times": 300}, 15, 1),
        ({"times": 40, "step": 6, "rows": 33, "columns": 36}, 4, 1),
        ({"names": ("t", "u"), "times": 100}, 5, 2),
    ],
)
def test_the_recipe_of_a_file_trains(maps, steps, streams, here):
    name = write(dataset(**maps), here / "maps.nc")
    notes = []
    path = new("atmosphere", [name], log=notes.append)
    recipe = Recipe.load(path, TINY)
    assert recipe.data.neighbourhood[0] == steps
    assert len(recipe.streams) == streams
    assert any(f"{maps['times']:,}" in note for note in notes)
    assert train(recipe, here / "run", show=False, report=False).scores["loss"] > 0


def test_the_kind_follows_from_the_name_and_a_field_can_be_chosen(here):
    name = write(dataset(("t", "u"), times=100), here / "maps.zarr")
    notes = []
    path = new(name, changes={"tokens.field": "u"}, log=notes.append)
    assert Recipe.load(path).tokens.field == "u"
    assert any("Other fields: t" in note for note in notes)
    with refuses("x", key="tokens.field"):
        new(name, out="other.yaml", changes={"tokens.field": "x"})


def test_a_file_with_few_times_is_refused(here):
    with refuses(9, key="data.files"):
        new("atmosphere", [write(dataset(times=9), here / "maps.nc")])
