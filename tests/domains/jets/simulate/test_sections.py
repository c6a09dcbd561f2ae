"""The reader that simulates jets: parts, pieces, fewer columns, what is kept, and files of the same form."""

import numpy as np
import pytest

from sciformer.assembly import Assembly
from sciformer.data.columns import Lists
from sciformer.data.source import pieces
from sciformer.domains.jets.simulate.files import simulate_jets
from sciformer.domains.jets.simulate.jets import BRANCHES, jets
from sciformer.domains.jets.simulate.sections import Jets, truncate_jets
from sciformer.recipe import Recipe
from sciformer.recipe.registry import find
from tests.errors import refuses


def section(**more):
    return Jets(kind="jets", **{"number": 100, "chunk_size": 40} | more)


def test_parts_come_in_pieces_and_have_no_jet_in_common():
    opened = section(valid=30).open()
    assert find("data", "jets") is Jets
    assert {part: source.sizes for part, source in opened.sources.items()} == {
        "train": [40, 40, 20],
        "valid": [30],
        "test": [10],
    }
    train = np.concatenate([table["jet_pt"] for table in pieces(opened.sources["train"])])
    np.testing.assert_array_equal(train, jets(100, part="train")["jet_pt"])
    for part in ("valid", "test"):
        assert not np.isin(opened.sources[part].load(0)["jet_pt"], train).any()
    assert list(opened.sources["train"].load(0)) == [*BRANCHES, "label"]
    assert list(section(valid=0, test=0).open().sources) == ["train"]


def test_what_names_the_data_changes_with_them():
    names = {str(section(**more).open().fingerprint) for more in ({}, {"seed": 1}, {"number": 99}, {"most": 5})}
    names.add(str(section(classes=["QCD", "Hbb"]).open().fingerprint))
    assert len(names) == 5
    assert section().open().fingerprint == section(cache="x").open().fingerprint


def test_only_wanted_columns_and_the_hardest_particles():
    told = section(most=10).want(["part_px", "part_py"], ["label"], ["part_charge", "nothing"])
    table = told.open().sources["train"].load(1)
    particles = {name for name in table if name.startswith("part_")}
    assert particles == {"part_px", "part_py", "part_charge"}
    assert {"label", "jet_pt", "jet_sdmass"} <= set(table)
    assert table["part_px"].lengths.max() == 10
    np.testing.assert_array_equal(table["jet_nparticles"], table["part_px"].lengths)
    whole = jets(40, first=40, part="train")["part_px"]
    starts = np.cumsum(whole.lengths) - whole.lengths
    ours = np.cumsum(table["part_px"].lengths) - table["part_px"].lengths
    np.testing.assert_array_equal(table["part_px"].values[ours], whole.values[starts])


def test_fewer_particles_than_allowed_stay_as_they_are():
    table = {"part_px": Lists(np.arange(5.0), np.array([2, 3])), "jet_nparticles": np.array([2, 3])}
    assert truncate_jets(table, 3) is table


def test_pieces_are_kept_where_asked_for_and_made_again_when_damaged(tmp_path):
    told = section(cache=str(tmp_path / "kept"), valid=0, test=0)
    first = told.open().sources["train"].load(0)
    (path,) = (tmp_path / "kept").iterdir()
    again = told.open().sources["train"].load(0)
    np.testing.assert_array_equal(first["part_d0val"].values, again["part_d0val"].values)
    assert list(first) == list(again)
    path.write_bytes(b"cut off")
    np.testing.assert_array_equal(told.open().sources["train"].load(0)["jet_pt"], first["jet_pt"])
    other = section(cache=str(tmp_path / "none"), valid=0, test=0)
    other.reopen().sources["train"].load(0)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with refuses(file=tmp_path / "file", hint="data.cache"):
        section(cache=str(tmp_path / "file")).open().sources["train"].load(0)


@pytest.mark.parametrize("suffix", [".root", ".parquet", ".npz"])
def test_files_of_the_same_form(tmp_path, suffix):
    path = tmp_path / f"new{suffix}"
    simulate_jets(path, 25, seed=8, log=lambda text: None)
    table = next(pieces(section().want(["part_px"], ["label"]).read([path])))
    made = jets(25, seed=8)
    np.testing.assert_array_equal(table["part_px"].values, made["part_px"].values)
    np.testing.assert_array_equal(table["label"], made["label"])


def test_a_recipe_puts_them_together():
    recipe = Recipe.load("jets/pfn", {"data.number": 60, "data.classes": ["QCD", "Hqql", "Tbl"]})
    data = Assembly.open(recipe)
    assert data.objective.classes == ["Hqql", "QCD", "Tbl"]
    assert {part: len(data.dataset(part)) for part in data.parts()} == {"train": 60, "valid": 6, "test": 6}


def test_what_makes_no_sense():
    with refuses("'Hbx'", hint="'Hbb'"):
        section(classes=["Hbx"]).open()
    for key, value in (("number", 0), ("most", 300), ("seed", -1)):
        with refuses(value, key=f"data.{key}"):
            Recipe.load("jets/pfn", {f"data.{key}": value})
