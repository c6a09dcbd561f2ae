"""A recipe for the user's own files: names, places, bad files, kinds of plugins, and what all fields guess alike."""

import pytest

from sciformer.checks.check import check
from sciformer.cli.main import main
from sciformer.data.readers.simulation import write_simulation
from sciformer.domains.jets.simulate.jets import Jets
from sciformer.recipe import Recipe, guess, registry
from sciformer.recipe.new import new
from sciformer.recipe.page import Found, Page
from tests.errors import refuses
from tests.recipe.written import written

JETS = {"model.class_depth": 1, "train.batch": 4}


pytestmark = pytest.mark.usefixtures("here")


def story(path, count=40):
    path.write_text("Once upon a time there was a bead on a string.\n" * count)
    return path.name


def test_a_recipe_is_short_and_every_guess_has_a_reason(tmp_path):
    path = new("text", [story(tmp_path / "story.txt")])
    assert str(path) == "story.yaml"
    assert Recipe.load(path).source.values["data"]["files"] == ["story.txt"]
    lines = path.read_text().splitlines()
    assert any(line.startswith("base: text/gpt-char") for line in lines)
    assert len(lines) < 40
    assert all("#" in line for line in lines if line.strip().startswith(("dim", "context", "steps", "unit")))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["story.txt", "story.yaml"]


def test_nothing_is_overwritten_unless_told(tmp_path):
    name = story(tmp_path / "story.txt")
    path = new("text", [name])
    path.write_text("mine")
    with refuses(file="story.yaml", hint="--overwrite"):
        new("text", [name])
    assert path.read_text() == "mine"
    assert "base:" in new("text", [name], overwrite=True).read_text()


def test_odd_names_stay_names(tmp_path):
    odd = 'a: b # "c"\nmodel: {x}.txt'
    story(tmp_path / odd)
    recipe = Recipe.load(new("text", [odd], "odd.yaml"))
    assert recipe.data.files == [odd]
    assert recipe.model.dim == 64


@pytest.mark.parametrize(
    ("kind", "names", "out", "mentions", "fields"),
    [
        ("text", [], None, (), {"hint": "sciformer new text FILE"}),
        ("text", ["stroy.txt"], None, ("stroy", "story.txt"), {}),
        ("text", ["story.txt"], "a.txt", ("a.txt",), {"key": "--out", "hint": "a.yaml"}),
        ("text", ["story.txt"], ".", ("'.'",), {"hint": "NAME.yaml"}),
        ("text", ["story.txt"], "story.txt/a.yaml", ("story.txt/a.yaml",), {"hint": "--out"}),
        (
            "txt",
            ["story.txt"],
            None,
            ("arrays, atmosphere, images, jets, join, lightcurves, patches, text", "'txt'"),
            {"hint": "'text'"},
        ),
        ("story.txt", [], None, ("'story.txt'",), {"file": "story.txt", "hint": "sciformer new KIND story.txt"}),
    ],
)
def test_names_and_places_that_are_none(tmp_path, kind, names, out, mentions, fields):
    story(tmp_path / "story.txt")
    with refuses(*mentions, **fields):
        new(kind, names, out)
    assert [file.name for file in tmp_path.iterdir()] == ["story.txt"]


def test_a_plugin_adds_a_kind_of_files(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.REGISTERED, "new", {})
    found = [Found("base", "text/gpt-char"), *guess.files({"train": ["story.txt"]}), Found("model.dim", 16, "small")]
    registry.register("new", "beads")(
        guess.Guess(lambda names, paths, given: Page("GPT", paths, "1 string", [], "x", found))
    )
    path = new("beads", [story(tmp_path / "story.txt")])
    recipe = Recipe.load(path)
    assert (recipe.model.dim, recipe.about.title) == (16, "GPT on story.txt")
    assert "  dim: 16                           # small\n" in path.read_text()
    with refuses(key="new.kind"):
        registry.register("new", "text")(guess.Guess(lambda names, paths, given: None))


# Bad files


def test_bad_files_are_left_out_and_named(tmp_path, capsys):
    write_simulation(Jets(number=30, classes=["QCD", "Hbb"]), tmp_path / "a.npz")
    assert main(["new", "jets", "a.npz", "--out", "good.yaml"]) == 0
    assert "cannot be read" not in capsys.readouterr().out
    assert Recipe.load("good.yaml").data.bad_files == "stop"
    (tmp_path / "0.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:3000])
    (tmp_path / "c.npz").write_text("hello")
    assert main(["new", "jets", "*.npz", "--out", "jets.yaml"]) == 0
    assert "cannot be read" in capsys.readouterr().out
    recipe, page = written("jets", ["*.npz"], **JETS)
    assert recipe.data.bad_files == "skip"
    assert all(text in page for text in ("# Found: 30 entries", "# left out 0.npz: ", "# left out c.npz: "))
    assert sum(note.startswith("left out ") for note in check(recipe.change(JETS)).notes) == 2
    with refuses("c.npz"):  # none can be read: the first is told
        new("jets", ["c.npz", "0.npz"], "none.yaml")
    assert not (tmp_path / "none.yaml").exists()


def test_a_folder_stands_for_its_files(tmp_path):
    for name in ("b", "h", "empty"):
        (tmp_path / name).mkdir()
        for number in range(2 * (name != "empty")):
            write_simulation(Jets(number=30, seed=number, classes=["QCD", "Hbb"]), tmp_path / name / f"{number}.npz")
            (tmp_path / name / "README.md").write_text("mine")
    path = new("jets", ["b"])
    assert str(path) == "b.yaml"
    assert Recipe.load(path).data.files == ["b/*.npz"]
    assert Recipe.load(new("jets", ["QCD:b", "Hbb:h/"], "two.yaml")).data.files == ["QCD:b/*.npz", "Hbb:h/*.npz"]
    with refuses("empty"):
        new("jets", ["empty"])


def test_folders_of_classes_and_parts(tmp_path):
    def files_of(*names):
        section = Recipe.load(new("jets", names, "made.yaml", overwrite=True)).data
        return section.files, section.test

    for name in ("all/train/b", "all/train/h", "all/test/b", "all/test/h", "runs/run1", "runs/run2"):
        (tmp_path / name).mkdir(parents=True)
        for number in range(2):
            made = Jets(number=30, seed=number, classes=["QCD", "Hbb"])
            write_simulation(made, tmp_path / name / f"{number}.npz")
    classes = ["b:all/train/b/*.npz", "h:all/train/h/*.npz"]
    test = [name.replace("train", "test") for name in classes]
    assert files_of("all") == (classes, test)
    assert files_of("all/train") == files_of("all/train/*") == files_of("all/train/b", "all/train/h") == (classes, [])
    assert files_of("all/train", "all/test") == (classes, test)
    assert files_of("runs") == (["runs/run1/*.npz", "runs/run2/*.npz"], [])  # batches, not classes
    assert files_of("all/train/b") == (["all/train/b/*.npz"], [])


# Guesses of all fields


def values(found):
    return {one.key: one.value for one in found if one.value is not None}


def test_sizes_shares_and_steps_by_count():
    sizes = {0: (32, 2, 4), 100: (64, 4, 8)}
    assert values(guess.model(99, "beads", sizes, None)) == {"model.dim": 32, "model.depth": 2, "model.heads": 4}
    assert values(guess.model(100, "beads", sizes))["model.dim"] == 64
    steps = [values(guess.training(count, 20, {0: 8, 500: 64}))["train.steps"] for count in (10, 100, 1000, 10**6)]
    assert steps == [100, 250, 312, 20_000]
    assert values(guess.training(1000, 20, {0: 64}, "loss"))["train.warmup"] == 31
    assert values(guess.split((), 99, "beads")) == {"data.split.valid": 0.1, "data.split.test": 0.0}
    assert values(guess.split(("valid",), 100, "beads", stratify="label")) == {
        "data.split.test": 0.1,
        "data.split.stratify": "label",
    }
    assert guess.split(("valid", "test"), 100, "beads") == []
    for parts, passes in (((), 25), (("valid", "test"), 20)):  # of the samples that are trained on
        (steps, *_) = guess.training(1000, 20, {0: 8}, parts=parts)
        assert steps.why.startswith(f"about {passes} passes")
