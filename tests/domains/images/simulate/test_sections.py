"""Simulated images as data: parts, pieces, what is known before, what is kept; trained on in a few steps."""

import numpy as np
import pytest

from sciformer.data.source import known_column, pieces
from sciformer.domains.images.simulate import sections
from sciformer.domains.images.simulate.sections import Cues, Galaxies, Lenses
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.errors import refuses

FEW = {"number": 40, "valid": 10, "test": 20, "size": 24, "chunk_size": 16}
KINDS = {"galaxies": Galaxies, "lenses": Lenses, "cues": Cues}
ANSWER = {"galaxies": "label", "lenses": "einstein_radius", "cues": "label"}


def make(kind, **more):
    return KINDS[kind](kind=kind, **{**FEW, **more})


def whole(source, name="image"):
    return np.concatenate([table[name] for table in pieces(source)])


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_apart_and_the_same_each_time(kind):
    one, two = (make(kind, chunk_size=size).open() for size in (16, 1000))
    assert {part: sum(source.sizes) for part, source in one.sources.items()} == {
        "train": 40,
        "valid": 10,
        "test": 20,
    } | ({"agree": 20} if kind == "cues" else {})
    assert one.sources["train"].sizes == [16, 16, 8]
    assert one.fingerprint == two.fingerprint
    seen = set()
    for part, source in one.sources.items():
        images = whole(source)
        np.testing.assert_array_equal(images, whole(two.sources[part]))
        seen |= {image.tobytes() for image in images}
        np.testing.assert_array_equal(known_column(source, ANSWER[kind]), whole(source, ANSWER[kind]))
        assert known_column(source, "nothing") is None
        assert known_column(source, "image", lists=True) is None
    assert len(seen) == sum(sum(source.sizes) for source in one.sources.values())
    other = make(kind, seed=1).open()
    assert other.fingerprint != one.fingerprint
    assert whole(other.sources["test"]).tobytes() != whole(one.sources["test"]).tobytes()


def test_a_tenth_is_kept_apart_unless_told():
    assert Galaxies(kind="galaxies", number=500).counts() == {"train": 500, "valid": 50, "test": 50}
    assert list(make("lenses", valid=0).open().sources) == ["train", "test"]


def test_cues_agree_where_they_are_learned_and_contradict_where_they_are_judged():
    found = {
        part: whole(source, "label") == whole(source, "texture") for part, source in make("cues").open().sources.items()
    }
    assert found["train"].all()
    assert found["valid"].all()
    assert found["agree"].all()
    assert not found["test"].any()
    mixed = make("cues", agree=0.5, number=400).open().sources
    assert 0.4 < (whole(mixed["train"], "label") == whole(mixed["train"], "texture")).mean() < 0.6
    assert (whole(mixed["agree"], "label") == whole(mixed["agree"], "texture")).all()


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_kept_in_a_folder(kind, tmp_path, monkeypatch):
    first = whole(make(kind, cache=str(tmp_path)).open().sources["train"])
    assert len(list(tmp_path.iterdir())) == 3
    section = make(kind, cache=str(tmp_path))
    (tmp_path / sorted(path.name for path in tmp_path.iterdir())[0]).write_bytes(b"cut off")
    np.testing.assert_array_equal(whole(section.open().sources["train"]), first)
    monkeypatch.setattr(KINDS[kind], "make", None)
    np.testing.assert_array_equal(whole(section.open().sources["train"]), first)
    monkeypatch.undo()
    before = sorted(tmp_path.iterdir())
    whole(make(kind, cache=str(tmp_path), seed=5).reopen().sources["train"])
    assert sorted(tmp_path.iterdir()) == before


def test_few_images_stay_in_memory_and_many_do_not(monkeypatch):
    source = make("galaxies").open().sources["train"]
    assert source.load(1) is source.load(1)
    monkeypatch.setattr(sections, "MAX_HELD_BYTES", 1000)
    source = make("galaxies").open().sources["train"]
    assert source.load(1) is not source.load(1)


def test_files_that_were_written_are_read(tmp_path):
    table = make("galaxies").make(5, 0, "file")
    np.savez(tmp_path / "a.npz", **table)
    found = make("galaxies").read([tmp_path / "a.npz"]).load(0)
    np.testing.assert_array_equal(found["image"], table["image"])


@pytest.mark.parametrize(
    ("kind", "more", "mentions"),
    [
        ("galaxies", {"classes": ["sprial"]}, ["'sprial'", "barred, unbarred"]),
        ("cues", {"size": 20}, [20, "24 to 512"]),
    ],
)
def test_nonsense_is_refused_before_anything_is_made(kind, more, mentions):
    with refuses(*mentions):
        make(kind, **more).open()


@pytest.mark.parametrize("name", ["images/galaxies", "images/lenses"])
def test_a_recipe_trains_on_them(name, tmp_path):
    small = {f"data.{key}": value for key, value in FEW.items()} | {"tokens.patch": 8}
    small |= {"model.dim": 16, "model.depth": 1, "model.heads": 2, "train.device": "cpu"}
    small |= {"train.steps": 3, "train.batch": 8, "train.evaluate_every": 3, "train.warmup": 1}
    run = train(Recipe.load(name, small), tmp_path / "run", show=False, report=False)
    assert np.isfinite(run.scores["loss"])
    assert Run(run.path).evaluate("test").size == 20
