"""Beginning with the weights of another run: what is taken, what is refused, and that it stays exact when stopped."""

import json
import shutil

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.cli.main import main
from sciformer.recipe import Recipe
from sciformer.run import Run
from sciformer.training.finetune import Pretrained, load_pretrained
from sciformer.training.folder import Folder
from sciformer.training.weights import load_weights
from tests.errors import refuses
from tests.training.tiny import (
    after_updates,
    assert_same,
    at_step,
    go,
    image_recipe,
    in_ranks,
    left,
    listening,
    text_recipe,
)

BODY = ("entrance.", "trunk.")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """An encoder of text and one of images, both pretrained on what is hidden."""
    folder = tmp_path_factory.mktemp("runs")
    masked = {"objective": {"kind": "masked"}, "train__ema": 0.0}
    go(text_recipe(folder, model={"kind": "encoder", "dim": 8, "depth": 2, "heads": 2}, **masked), folder / "text")
    go(image_recipe(folder, **masked), folder / "images")
    go(image_recipe(folder), folder / "classes")
    return folder


@pytest.fixture
def lines(tmp_path):
    """Labelled lines with letters that the pretraining never saw."""
    path = tmp_path / "lines.tsv"
    path.write_text("label\ttext\n" + "".join(f"{'ab'[n % 2]}\t{'abcxyz'[n % 6] * (1 + n % 9)} a\n" for n in range(40)))
    return path


def labelled(lines, start, **changes):
    """A recipe that leaves open what the other run has."""
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "lines", "files": [str(lines)], "split": {"valid": 0.2, "test": 0.0}},
            "tokens": {"kind": "text"},
            "model": {"kind": "encoder", "dropout": 0.2},
            "objective": {"kind": "classify"},
            "train": {"steps": 8, "batch": 8, "warmup": 2, "learning_rate": 0.01, "log_every": 1, "save_every": 3}
            | {"evaluate_every": 4, "device": "cpu", "init_from": str(start)},
        }
    )
    return recipe.change({key.replace("__", "."): value for key, value in changes.items()})


def filled(recipe):
    made, start = load_pretrained(recipe, Folder("nowhere"))
    assembly = Assembly.open(made, pretrained=start)
    return assembly, assembly.network(), start


def test_weights_and_tokens_are_taken_and_the_rest_is_drawn(runs, lines):
    assembly, network, start = filled(labelled(lines, runs / "text"))
    theirs, _ = load_weights(runs / "text" / "model")
    own = dict(network.named_parameters())
    for name, weight in own.items():
        assert name.startswith(BODY) == (name in theirs)
        if name in theirs:
            assert torch.equal(weight, theirs[name])
    assembly.pretrained = None
    fresh = dict(assembly.network().named_parameters())
    assert all(torch.equal(own[name], fresh[name]) for name in own if name.startswith("heads."))
    assert not torch.equal(own["entrance.embedding.table.weight"], fresh["entrance.embedding.table.weight"])
    state = json.loads((runs / "text" / "model" / "statistics.json").read_text())
    assert assembly.tokens["tokens"].state == state["tokens"]["tokens"]
    assert assembly.objective.classes == ["a", "b"]
    body = sum(weight.numel() for name, weight in own.items() if name.startswith(BODY))
    assert start.about["parameters"] == body
    assert start.about["new"] == ["heads.class.layer.1.bias", "heads.class.layer.1.weight"]
    assert start.about["left"] == []
    assert f"{start.about['tensors']} tensors ({body:,} parameters) of {runs / 'text'}" in start.words()


def test_what_is_left_open_is_theirs(runs, lines):
    made, _ = load_pretrained(labelled(lines, runs / "text"), Folder("nowhere"))
    assert (made.model.dim, made.model.depth, made.model.heads, made.model.dropout) == (8, 2, 2, 0.2)
    assert made.tokens.context == 12
    assert made.train.init_from == str(runs / "text")
    assert made.train.init_from_hash == Pretrained(runs / "text").hash
    assert load_pretrained(made, Folder("nowhere"))[0] == made
    wider = labelled(lines, runs / "text", model__pool="max", model__dropout=0.0)
    assert filled(wider)[0].recipe.model.pool == "max"


@pytest.mark.parametrize(
    ("changes", "key", "mentions", "hint"),
    [
        ({"model__dim": 16}, "model.dim", ["model.dim is 16", "8"], ""),
        ({"model__depth": 1}, "model.depth", ["model.depth is 1", "2", "trunk.blocks.1", "none in the recipe"], ""),
        ({"model__depth": 3}, "model.depth", ["model.depth is 3", "2", "trunk.blocks.2", "none in that run"], ""),
        ({"model__position": "rotary"}, "model.position", ["rotary", "auto"], ""),
        ({"model__trunk": "lstm"}, "model.trunk", ["lstm", "transformer"], ""),
        ({"tokens__context": 20}, "tokens.context", ["20", "12", "trunk.position.table", "(20, 8)"], ""),
        ({"tokens__unit": "bytes"}, "tokens.unit", ["bytes", "characters"], ""),
        ({"train__init_from_hash": "0123"}, "train.init_from_hash", ["0123"], "train.init_from_hash"),
        ({"train__init_from": "runs/nowhere"}, "train.init_from", ["runs/nowhere"], "--from RUN"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_keys(runs, lines, changes, key, mentions, hint):
    file = changes.get("train__init_from", runs / "text")
    with refuses(*mentions, key=key, file=file, hint=hint):
        filled(labelled(lines, runs / "text", **changes))


def test_other_tokens_and_the_run_itself_are_refused(runs, lines):
    with refuses("text", "patches", key="tokens.kind", file=runs / "images"):
        filled(labelled(lines, runs / "images"))
    with refuses(key="train.init_from", file=runs / "text", hint="--run"):
        go(labelled(lines, runs / "text"), runs / "text")


def test_heads_are_kept_where_the_question_is_the_same(runs, tmp_path):
    shutil.copy(runs / "images.npz", tmp_path)
    recipe = image_recipe(tmp_path, train__init_from=str(runs / "classes"))
    _, network, start = filled(recipe)
    assert start.about["new"] == start.about["left"] == []
    theirs, _ = load_weights(runs / "classes" / "model")
    assert all(torch.equal(weight, theirs[name]) for name, weight in network.named_parameters())
    with np.load(runs / "images.npz") as old:
        np.savez(tmp_path / "other.npz", image=old["image"], label=np.where(old["label"], "up", "down"))
    other = recipe.change({"data.files": [str(tmp_path / "other.npz")]})  # as many classes, but others
    assert filled(other)[2].about["new"] == ["heads.class.layer.1.bias", "heads.class.layer.1.weight"]
    deeper = filled(recipe.change({"objective.hidden": 4}))[2].about
    assert len(deeper["new"]) == 4
    assert len(deeper["left"]) == 2
    hidden = filled(image_recipe(tmp_path, train__init_from=str(runs / "images")))[2].about
    assert hidden["left"] == ["entrance.hidden", "readout.linear.bias", "readout.linear.weight"]
    back = filled(image_recipe(tmp_path, objective={"kind": "masked"}, train__init_from=str(runs / "classes")))[2].about
    assert back["new"] == ["entrance.hidden", "readout.linear.bias", "readout.linear.weight"]


@pytest.mark.parametrize("stop", [1, 4, 5])
def test_a_run_that_was_stopped_needs_the_other_no_more(runs, lines, tmp_path, stop):
    other = tmp_path / "other"
    shutil.copytree(runs / "text", other)
    recipe = labelled(lines, other, train__layer_decay=0.5, train__head_lr_scale=3.0, train__ema=0.9)
    reference = left(go(recipe, tmp_path / "whole"))
    with listening() as said:
        go(recipe, tmp_path / "parts", stop_after=stop)
    assert sum(f"of {other}" in line for line in said) == 1
    kept = Run(tmp_path / "parts").about["init_from"]
    shutil.rmtree(other)
    with listening() as said:
        run = go(recipe, tmp_path / "parts")
    assert not any(f"of {other}" in line for line in said)
    assert_same(run, reference)
    assert Run(run.path).about["init_from"] == kept
    assert kept["run"] == str(other)
    assert Run(run.path).recipe.train.init_from_hash == kept["hash"]
    with listening() as said:
        go(Recipe.load(run.path), run.path)  # and so does the recipe it keeps
    assert said[0] == f"already complete: 8 steps in {run.path}"
    assert set(run.predict([lines])["class"]) <= {"a", "b"}
    with refuses("model.dim: 8 -> 16", key="model.dim"):
        go(recipe.change({"model.dim": 16}), run.path)
    with refuses(key="train.init_from", hint="--from RUN"):
        go(recipe, tmp_path / "late")
    assert not (tmp_path / "late").exists()


def test_only_the_heads_of_a_frozen_model_learn(runs, lines, tmp_path):
    recipe = labelled(
        lines, runs / "text", train__freeze=True, model__dropout=0.5, train__ema=0.5, model__pool="attention"
    )
    reference = left(go(recipe, tmp_path / "whole"))
    theirs, _ = load_weights(runs / "text" / "model")
    tensors = reference[0]
    for kind in ("weights", "average", "model"):
        for name, weight in theirs.items():
            if name.startswith(BODY):
                assert torch.equal(tensors[f"{kind} {name}"], weight)
    begun = filled(recipe)[1].state_dict()
    moved = {name for name in begun if not torch.equal(tensors[f"weights {name}"], begun[name])}
    assert moved == {name for name in begun if not name.startswith(BODY)}
    assert moved >= {"heads.class.layer.1.weight", "pooling.seeds"}
    assert not any(name.split(" ")[-1].startswith(BODY) for name in tensors if name.startswith("optimizer "))
    with listening() as said:
        go(recipe, tmp_path / "parts", stop_after=5)
    assert any("of these parameters are trained" in line for line in said)
    assert_same(go(recipe, tmp_path / "parts"), reference)


def test_what_is_fixed_has_no_dropout(runs, lines, tmp_path):
    seen = []

    def note(made, batch):
        seen.append({name: child.training for name, child in made.step.model.named_children()})

    with after_updates(note):
        go(labelled(lines, runs / "text", train__freeze=True), tmp_path / "frozen")
        go(labelled(lines, runs / "text"), tmp_path / "free")
    assert len(seen) == 16  # before and after judging
    assert all(one == {"entrance": False, "trunk": False, "heads": True, "pooling": True} for one in seen[:8])
    assert all(all(one.values()) for one in seen[8:])


def test_freezing_what_has_no_heads_is_refused(runs, tmp_path):
    recipe = text_recipe(tmp_path, train__freeze=True)
    with refuses("next_token", key="train.freeze"):
        go(recipe, tmp_path / "run")


def test_ranks_begin_alike(runs, lines, tmp_path):
    recipe = labelled(lines, runs / "text", model__dropout=0.0)
    alone = go(recipe, tmp_path / "alone")

    def work():
        torch.set_num_threads(1)
        return go(recipe, tmp_path / "two").scores["loss"]

    losses = in_ranks(work, tmp_path)
    assert losses[0] == losses[1]
    assert float(losses[0]) == pytest.approx(alone.scores["loss"], abs=1e-4)


def test_the_verbs(runs, lines, tmp_path, here, monkeypatch, capsys):
    monkeypatch.setattr("sciformer.run.Run.report", lambda run: run.folder.write("report.html", ""))
    text_recipe(tmp_path)
    small = ["--model.dim=8", "--model.depth=1", "--model.heads=2", "--train.device=cpu", "--train.steps=2"]
    (tmp_path / "hide.yaml").write_text(
        "data: {kind: text, files: [lines.txt], documents: line}\ntokens: {kind: text, context: 12}\n"
        "model: {kind: encoder}\nobjective: {kind: masked}\n"
    )
    assert main(["pretrain", "hide.yaml", *small, "--quiet"]) == 0
    (tmp_path / "mood.yaml").write_text(
        f"data: {{kind: lines, files: [{lines.name}]}}\ntokens: {{kind: text}}\nmodel: {{kind: encoder}}\n"
        "objective: {kind: classify}\ntrain: {steps: 2, device: cpu}\n"
    )
    capsys.readouterr()
    assert main(["finetune", "mood.yaml"]) == 2
    said = capsys.readouterr().err
    assert "--from RUN" in said
    assert "runs/hide" in said
    assert main(["finetune", "mood.yaml", "--from", "runs/hide"]) == 0
    assert "of " + str(tmp_path / "runs" / "hide") in capsys.readouterr().err
    assert Run("runs/mood").recipe.model.dim == 8
    assert main(["finetune", "mood.yaml", "--from", "runs/mood", "--run", "runs/more"]) == 0
    assert "evaluated before the first step" in capsys.readouterr().err
    assert main(["finetune", "mood.yaml", "--from", "runs/hide"]) == 0
    assert "already complete" in capsys.readouterr().err
    assert main(["check", "mood.yaml", "--train.init_from", "runs/hide"]) == 0
    assert "ready to train" in capsys.readouterr().out
    assert main(["finetune", "mood.yaml", "--from", "runs/hide", "--run", "runs/b", "--model.dim", "16"]) == 2
    assert "model.dim is 16 here and 8 in that run" in capsys.readouterr().err


def test_a_class_token_is_fixed_with_the_trunk(runs, tmp_path):
    first = go(image_recipe(tmp_path, model__pool="class_token"), tmp_path / "first")
    more = {"train__freeze": True, "train__init_from": str(first.path), "model__pool": "class_token"}
    second = go(image_recipe(tmp_path, **more), tmp_path / "second")
    (before, _), (after, _) = (load_weights(run.folder.model) for run in (first, second))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"heads.class.layer.1.weight", "heads.class.layer.1.bias"}
    with refuses("train.freeze", key="model.pool", file=runs / "images", hint="mean"):
        go(image_recipe(tmp_path, **more | {"train__init_from": str(runs / "images")}), tmp_path / "third")


def test_what_answers_from_the_start_is_judged_and_nothing_worse_is_kept(runs, tmp_path):
    first = Run(runs / "classes")
    more = {"train__init_from": str(first.path), "train__learning_rate": 10.0, "train__clip_norm": 0.0}
    ruined = go(image_recipe(runs, **more), tmp_path / "ruined")
    (before, _), (after, kept) = (load_weights(run.folder.model) for run in (first, ruined))
    assert kept["step"] == 0
    assert all(torch.equal(before[name], after[name]) for name in before)
    judged = [record["step"] for record in ruined.records if "valid_loss" in record]
    assert judged == [0, 5, 10, 14]
    assert ruined.scores["loss"] == pytest.approx(first.scores["loss"], abs=1e-5)
    new = go(image_recipe(runs, train__init_from=str(runs / "images")), tmp_path / "new")  # its head knows nothing yet
    assert min(record["step"] for record in new.records if "valid_loss" in record) == 5


def test_a_start_is_judged_once_though_the_run_began_twice(runs, tmp_path):
    recipe = image_recipe(runs, train__init_from=str(runs / "classes"))

    def die():
        raise RuntimeError("before the first checkpoint")

    with pytest.raises(RuntimeError), at_step(3, die):
        go(recipe, tmp_path / "run")
    again = go(recipe, tmp_path / "run")
    assert [record["step"] for record in again.records if "valid_loss" in record] == [0, 5, 10, 14]
    assert_same(again, left(go(recipe, tmp_path / "other")))
