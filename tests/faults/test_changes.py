"""Changes since the start of a run are detected before it continues."""

import json
import os
import re
from pathlib import Path

import pytest

from sciformer.recipe import plugin, registry
from sciformer.run import Run
from sciformer.training import checkpoint
from sciformer.training.resume import Changed
from tests.errors import refuses
from tests.faults import fault
from tests.training.tiny import assert_same, go, left, listening, text_recipe


@fault("the recipe changed since the last checkpoint", "refused with the difference; `--accept-changes` continues")
def test_changed_recipe(tmp_path, texts):
    recipe, _ = texts
    go(recipe, tmp_path, stop_after=4)
    other = recipe.change({"train.learning_rate": 0.5, "train.ema": 0.0, "model.dropout": 0.0})
    changes = ("model.dropout: 0.2 -> 0.0", "train.ema: 0.9 -> 0.0", "train.learning_rate: 0.01 -> 0.5")
    with refuses(*changes, key="model.dropout", hint="--accept-changes"):
        go(other, tmp_path)
    with listening() as said:
        run = go(other, tmp_path, accept_changes=True)
    assert any("train.learning_rate: 0.01 -> 0.5" in text for text in said)
    assert left(run)[1]["step"] == 14
    assert run.recipe.train.learning_rate == 0.5
    assert_same(go(other, tmp_path), left(run))  # and now this is the recipe


@fault("another version of Sciformer or PyTorch than at the start of the run", "noted; the training continues")
def test_other_versions(tmp_path, texts):
    recipe, reference = texts
    run = go(recipe, tmp_path, stop_after=4)
    with listening() as said:
        go(recipe, tmp_path, stop_after=6)
    assert not [text for text in said if "PyTorch" in text]
    about = run.folder.read_json("run.json")
    run.folder.seal({"run.json": json.dumps({**about, "torch": "2.1.0", "sciformer": "0.0.9"})})
    with listening() as said:
        assert_same(go(recipe, tmp_path), reference)
    (note,) = [text for text in said if "PyTorch 2.1.0" in text]
    assert "Sciformer 0.0.9" in note


@fault("train.ema switched on after the checkpoint", "the average starts from its weights")
def test_averaging_begun_late(tmp_path, texts):
    recipe, _ = texts
    go(recipe.change({"train.ema": 0.0}), tmp_path, stop_after=4)
    tensors, _ = left(go(recipe, tmp_path, accept_changes=True))
    assert any(name.startswith("average") for name in tensors)


@fault("another model than in the checkpoint, accepted by mistake", "refused, with the weights that do not fit")
def test_other_model(tmp_path, texts):
    recipe, _ = texts
    go(recipe, tmp_path, stop_after=4)
    with refuses("embedding", file=tmp_path / "checkpoints" / "step-0000004"):
        go(recipe.change({"model.dim": 4}), tmp_path, accept_changes=True)


@fault(
    "changed settings that do not affect the weights (workers, saves, log, max_skipped, about)",
    "continues; the same weights",
)
def test_neutral_keys(tmp_path, texts):
    recipe, reference = texts
    go(recipe, tmp_path, stop_after=5)
    changes = {"train.workers": 1, "train.save_every": 2, "train.keep": 3, "train.log_every": 1, "train.max_skipped": 2}
    run = go(recipe.change({**changes, "train.shard": "full", "about.title": "another"}), tmp_path)
    assert checkpoint.steps(run.folder.checkpoints) == [10, 12, 14]
    tensors, expected = left(run)[0], reference[0]
    assert [name for name in expected if name != "log sums" and not tensors[name].equal(expected[name])] == []


@fault("the recipe changed before the first checkpoint", "the new recipe is used, as nothing is lost")
def test_changed_recipe_before_a_checkpoint(tmp_path, texts):
    recipe, _ = texts
    go(recipe.change({"tokens.unit": "bytes", "model.dim": 4}), tmp_path, stop_after=0)
    assert_same(go(recipe, tmp_path), texts[1])


@fault(
    "the data changed since the last checkpoint (files up to 256 MiB are compared completely, larger files by size and "
    "66 blocks of 64 KiB)",
    "refused, with the name of the file; `--accept-changes` continues",
)
def test_changed_data(tmp_path):
    recipe = text_recipe(tmp_path)
    go(recipe, tmp_path / "run", stop_after=4)
    path = tmp_path / "lines.txt"
    path.write_text(path.read_text().replace("a", "b"))
    with refuses("lines.txt", hint="--accept-changes", error=Changed) as refused:
        go(recipe, tmp_path / "run")
    assert re.search(r"lines\.txt \(\d+ bytes, \w+ -> \d+ bytes, \w+\)", refused.value.message)
    with listening() as said:
        go(recipe, tmp_path / "run", accept_changes=True)
    assert any("the data changed" in text for text in said)


@fault("the data changed before an evaluation", "refused, with the name of the file; the old scores are kept")
def test_changed_data_judged(tmp_path):
    run = go(text_recipe(tmp_path), tmp_path / "run", report=True)
    path, scores = tmp_path / "lines.txt", tmp_path / "run" / "scores.json"
    path.write_text(path.read_text()[1:] + "a")
    before = scores.read_text()
    with refuses("lines.txt", error=Changed):
        Run(run.path).evaluate("valid")
    Run(run.path).report()
    assert scores.read_text() == before


@fault("restarted from another folder, with other paths to the same files", "continues; the same result")
def test_other_folder(tmp_path, texts, monkeypatch):
    recipe, reference = texts
    path = Path(recipe.data.files[0])
    for folder, name in ((path.parent, path.name), (tmp_path, os.path.relpath(path, tmp_path))):
        monkeypatch.chdir(folder)
        run = go(recipe.change({"data.files": [name]}), tmp_path / "run", stop_after=5 if folder != tmp_path else None)
    assert_same(run, reference)


PLUGIN = """
from sciformer.objectives.next_token import NextToken
from sciformer.recipe.registry import register

@register("objective", "following")
class Following(NextToken):
    "The next token, under another name."
"""


@fault("a plugin of the run missing or changed", "refused, with its name; never imported automatically")
@pytest.mark.usefixtures("own_plugins")
def test_missing_plugin(tmp_path, monkeypatch):
    path = tmp_path / "following.py"
    path.write_text(PLUGIN)
    given = plugin.load(path)
    recipe = text_recipe(tmp_path).change({"objective.kind": "following"})
    go(recipe, tmp_path / "run", stop_after=4, plugins=[given])
    for attempt in (lambda: go(recipe, tmp_path / "run"), lambda: Run(tmp_path / "run")):
        with refuses("following.py", hint="--plugin following.py"):
            attempt()
    path.write_text(PLUGIN + "# changed\n")
    plugin.LOADED_PLUGINS.clear()
    monkeypatch.setattr(registry, "REGISTERED", {point: {} for point in registry.EXTENSION_POINTS})
    changed = plugin.load(path)
    with refuses(path, given.sha256[:12], changed.sha256[:12]):
        go(recipe, tmp_path / "run", plugins=[changed])
    assert left(go(recipe, tmp_path / "run", plugins=[changed], accept_changes=True))[1]["step"] == 14


@fault("`--fresh` in a folder with other files", "only files of the training are removed; the same result")
def test_fresh_removes_only_its_own(tmp_path, texts):
    recipe, reference = texts
    go(recipe.change({"model.dim": 4, "train.steps": 6}), tmp_path)
    others = ["notes.txt", "model/mine.py", "model/weights.pt", "checkpoints/mine/a", "tensorboard/mine"]
    others.append("step-0000004/b")
    for name in others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    (tmp_path / "checkpoints" / ".partial-step-0000009-1").mkdir()
    run = go(recipe, tmp_path, fresh=True)
    assert all((tmp_path / name).read_text() == "mine" for name in others)
    assert not (tmp_path / "checkpoints" / ".partial-step-0000009-1").exists()
    assert_same(run, reference)


@fault("a folder with a recipe.yaml but no run", "refused, because that file would be overwritten")
@pytest.mark.parametrize("fresh", [False, True])
def test_folder_with_a_recipe_of_the_user(tmp_path, texts, fresh):
    (tmp_path / "recipe.yaml").write_text("mine")
    with refuses("recipe.yaml", file=tmp_path, hint="--run"):
        go(texts[0], tmp_path, fresh=fresh)
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


@fault(
    "a folder with files named like those of a training, but no run",
    "refused, with the name of a file, also with `--fresh`; nothing is deleted or replaced",
)
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    "name", ["checkpoints/step-0000001/mine", "model/weights.safetensors", "report.html", "run.json"]
)
def test_folder_with_files_of_others(tmp_path, texts, name, fresh):
    (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "run" / name).write_text('{"mine": 1}')
    before = sorted(tmp_path.rglob("*"))
    with refuses(Path(name).parts[0], file=tmp_path / "run", hint="--run"):
        go(texts[0], tmp_path / "run", fresh=fresh)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "run" / name).read_text() == '{"mine": 1}'
