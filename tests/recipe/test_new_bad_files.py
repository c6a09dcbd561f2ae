"""Files that cannot be read: a recipe is written for the others, leaves them out and names them; and whole folders."""

import pytest

from sciformer.check.check import check
from sciformer.cli.main import main
from sciformer.domains.jets.simulate.files import simulate_jets
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from tests.errors import refuses

SMALL = {"model.dim": 8, "model.heads": 2, "model.depth": 1, "model.class_depth": 1}
SMALL |= {"train.steps": 2, "train.batch": 4, "train.warmup": 0, "train.device": "cpu"}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    simulate_jets(tmp_path / "a.npz", 30, 0, ("QCD", "Hbb"), show=False)


def test_jets(tmp_path, capsys):
    assert main(["new", "jets", "a.npz", "--out", "good.yaml"]) == 0
    assert "cannot be read" not in capsys.readouterr().out
    assert Recipe.load("good.yaml").data.bad_files == "stop"
    (tmp_path / "0.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:3000])
    (tmp_path / "c.npz").write_text("hello")
    assert main(["new", "jets", "*.npz", "--out", "jets.yaml"]) == 0
    assert "some files cannot be read and are left out: the head of jets.yaml names them" in capsys.readouterr().out
    recipe, page = Recipe.load("jets.yaml"), (tmp_path / "jets.yaml").read_text("utf-8")
    assert recipe.data.bad_files == "skip"
    assert "# Found: 30 entries" in page
    assert "# left out 0.npz: " in page
    assert "# left out c.npz: " in page
    checked = check(recipe.change(SMALL))
    assert checked.problems == []
    assert sum(note.startswith("left out ") for note in checked.notes) == 2


def test_where_none_can_be_read_the_first_is_told(tmp_path):
    for name in ("c", "d"):
        (tmp_path / f"{name}.npz").write_text("hello")
    with refuses("c.npz"):
        new("jets", ["c.npz", "d.npz"])
    assert not list(tmp_path.glob("*.yaml"))


def test_a_folder_stands_for_its_files(tmp_path):
    for name in ("b", "h"):
        (tmp_path / name).mkdir()
        (tmp_path / "a.npz").rename(tmp_path / name / "a.npz")
        (tmp_path / name / "README.md").write_text("mine")
        simulate_jets(tmp_path / "a.npz", 30, 1, ("QCD", "Hbb"), show=False)
        simulate_jets(tmp_path / name / "more.npz", 30, 2, ("QCD", "Hbb"), show=False)
    path = new("jets", ["b"])
    assert str(path) == "b.yaml"
    assert Recipe.load(path).data.files == ["b/*.npz"]
    assert Recipe.load(new("jets", ["QCD:b", "Hbb:h/"], "two.yaml")).data.files == ["QCD:b/*.npz", "Hbb:h/*.npz"]
    (tmp_path / "empty").mkdir()
    with refuses("empty"):
        new("jets", ["empty"])
