"""The loop: what is logged, judged, kept, averaged and stopped early."""

import dataclasses
import gc
import json
import math
import weakref
from functools import partial

import pytest
import torch

from sciformer.domains.images.tokens import Patches
from sciformer.evaluation.evaluate import evaluate
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from sciformer.training import checkpoint
from sciformer.training.config import NEUTRAL_KEYS, Train
from sciformer.training.engine import Engine
from sciformer.training.weights import load_weights
from tests.errors import refuses
from tests.training.tiny import (
    BATCHES,
    STEPS,
    after_updates,
    assert_same,
    engine,
    go,
    image_recipe,
    left,
    listening,
    text_recipe,
)


def test_the_log(tmp_path):
    run = go(text_recipe(tmp_path), tmp_path / "run")
    steps = [line for line in run.records if "loss" in line]
    scores = [line for line in run.records if "valid_loss" in line]
    assert [line["step"] for line in steps] == [3, 6, 9, 12]
    assert [line["step"] for line in scores] == [5, 10, STEPS]
    assert set(steps[0]) == {"step", "epoch", "loss", "norm", "learning_rate", "tokens_per_s", "time"}
    assert set(scores[0]) == {"step", "valid_loss", "valid_perplexity", "valid_token_accuracy"}
    assert [line["epoch"] for line in steps] == [line["step"] / BATCHES for line in steps]
    assert all(line["tokens_per_s"] > 0 and line["norm"] > 0 for line in steps)
    assert scores[-1]["valid_perplexity"] == pytest.approx(math.exp(scores[-1]["valid_loss"]), rel=1e-5)
    every = go(text_recipe(tmp_path, train__log_every=1), tmp_path / "every")
    losses = [line["loss"] for line in every.records if "loss" in line]
    assert [line["loss"] for line in steps] == pytest.approx([sum(losses[n - 3 : n]) / 3 for n in (3, 6, 9, 12)])


def test_the_log_of_images_learns(tmp_path):
    run = go(image_recipe(tmp_path), tmp_path / "run")
    losses = [line["loss"] for line in run.records if "loss" in line]
    assert sum(losses[-3:]) < sum(losses[:3])
    assert set(run.scores) == {"loss", "accuracy", "balanced_accuracy", "macro_f1", "auc", "calibration_error"}


def test_the_average_is_that_of_a_naive_loop(tmp_path):
    made = engine(text_recipe(tmp_path, train__ema=0.8), tmp_path / "run")
    naive = {name: weight.detach().double() for name, weight in made.step.model.named_parameters()}

    def average(made, batch):
        keep = min(0.8, (1 + made.number) / (10 + made.number))
        for name, weight in made.step.model.named_parameters():
            naive[name] = keep * naive[name] + (1 - keep) * weight.detach().double()

    with after_updates(average):
        made.run()
    for name, weight in made.ema.items():
        torch.testing.assert_close(weight, naive[name].float())
    weights, _ = load_weights(made.folder.model)
    assert all(torch.equal(weights[name], weight) for name, weight in made.ema.items())  # the last was the best
    current = dict(made.step.model.named_parameters())
    assert not all(torch.equal(current[name], weight) for name, weight in made.ema.items())


def test_best_and_last(tmp_path, monkeypatch):
    """The kept model is the best one; the last checkpoint goes on from the last step."""
    losses = iter([3.0, math.nan, 1.0, 2.0, 1.0, 4.0, math.nan])

    def judged(*given, **options):
        return dataclasses.replace(evaluate(*given, **options), scores={"loss": next(losses)})

    monkeypatch.setattr("sciformer.training.engine.evaluate", judged)
    run = go(text_recipe(tmp_path, train__evaluate_every=2), tmp_path / "run")
    weights, about = load_weights(run.folder.model)
    assert about == {"step": 6, "scores": {"loss": 1.0}}
    monkeypatch.undo()
    whole = go(text_recipe(tmp_path, train__evaluate_every=2, train__steps=STEPS), tmp_path / "other", stop_after=6)
    saved = checkpoint.load(whole.folder.checkpoints, log=pytest.fail, step=6)
    assert all(torch.equal(weights[name], saved.tensors["average"][name]) for name in weights)
    assert checkpoint.steps(run.folder.checkpoints) == [12, 14]


@pytest.mark.parametrize(
    ("best", "scores", "kept"),
    [
        ("loss", [(math.nan,), (2.0,), (math.nan,), (3.0,), (2.0,)], 1),
        ("token_accuracy", [(2.0, 0.1), (1.0, 0.4), (1.0, 0.4), (0.5, 0.2), (1.1, 0.4)], 1),
        ("token_accuracy", [(2.0, 0.4), (1.0, 0.4), (0.5, 0.3), (0.9, 0.4), (0.9, math.nan)], 3),
        ("perplexity", [(0.7, 3.0), (0.6, 3.0), (0.5, 4.0)], 1),
    ],
)
def test_what_is_better(tmp_path, best, scores, kept):
    """Of two that are as good, the one with the lower loss."""
    made = engine(text_recipe(tmp_path, train__best=best), tmp_path / "run")
    for number, score in enumerate(scores):
        found = dict(zip(("loss", best), score))
        if made._is_better(found):
            made.best = {"step": number, "scores": found}
    assert made.best["step"] == kept


def test_a_metric_that_nobody_measures_is_refused_at_once(tmp_path):
    with refuses("loss, perplexity, token_accuracy", key="train.best"):
        engine(text_recipe(tmp_path, train__best="accuracy"), tmp_path / "run")


def test_nothing_is_varied_where_it_is_judged(tmp_path, monkeypatch):
    run = go(image_recipe(tmp_path, tokens__augment=["flip", "negate"]), tmp_path / "run")
    monkeypatch.setattr(Patches, "augment_stream", lambda *_: pytest.fail("varied"))
    assert run.evaluate("valid").scores["loss"] == pytest.approx(run.scores["loss"], rel=1e-6)
    run.predict(tmp_path / "images.npz")


def test_early_stopping(tmp_path, monkeypatch):
    recipe = text_recipe(tmp_path, train__patience=2, train__evaluate_every=2, train__save_every=100)
    monkeypatch.setattr(Engine, "_is_better", lambda engine, scores: engine.number <= 4)
    with listening() as said:
        run = go(recipe, tmp_path / "run")
    assert any("no better loss in 2 evaluations: stopping early" in text for text in said)
    assert left(run)[1]["step"] == 8
    assert run.records[-1]["step"] == 8
    reference = left(run)
    with listening() as said:
        assert_same(go(recipe, tmp_path / "run"), reference)
    assert any("already complete: 8 steps" in text for text in said)
    go(recipe, tmp_path / "stopped", stop_after=6)  # patience goes on over stops
    assert_same(go(recipe, tmp_path / "stopped"), reference)


def test_the_mean_of_the_last_checkpoints_is_kept_and_judged(tmp_path):
    recipe = text_recipe(tmp_path, train__average_last=3, train__ema=0.0, train__keep=1)
    run = go(recipe, tmp_path / "run")
    assert checkpoint.steps(run.folder.checkpoints) == [8, 12, 14]
    weights, about = load_weights(run.folder.model)
    assert about["mean_of"] == [8, 12, 14]
    saved = [checkpoint.load(run.folder.checkpoints, log=pytest.fail, step=step) for step in (8, 12, 14)]
    for name, weight in weights.items():
        torch.testing.assert_close(weight, torch.stack([one.tensors["weights"][name] for one in saved]).mean(0))
    assert run.evaluate("valid").scores == pytest.approx(run.scores)


def test_neutral_keys_are_keys(tmp_path):
    recipe = text_recipe(tmp_path)
    dump = recipe.to_dict()
    for key in NEUTRAL_KEYS:
        section, _, name = key.partition(".")
        assert name in dump[section] if name else section in dump, key


def test_norms_over_a_batch_see_samples_of_all_lengths(tmp_path):
    small = {"data.number": 64, "data.valid": 8, "data.test": 0, "train.batch": 8, "train.device": "cpu"}
    recipes = {
        "without": Recipe.load("lightcurves/transformer", small | {"train.packed": False}),
        "with": Recipe.load("jets/pcnn", small),
        "forced": Recipe.load("jets/pcnn", small | {"train.bucket": True}),
    }
    found = {name: engine(recipe, tmp_path / name).order.lengths is not None for name, recipe in recipes.items()}
    assert found == {"without": True, "with": False, "forced": True}


def counting(monkeypatch):
    """Let the compiler call functions as they are; a list of the functions it compiled that are alive."""
    alive = []

    class Compiled:
        def __init__(self, graph):
            self.graph = graph

        def __call__(self, *arguments):
            return self.graph.forward(*arguments)

    def backend(graph, examples):
        found = Compiled(graph)
        alive.append(weakref.ref(found))
        return found

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    return alive


def count(alive):
    gc.collect()
    return sum(one() is not None for one in alive)


def test_a_training_frees_what_it_compiled_and_nothing_else(tmp_path, monkeypatch):
    alive = counting(monkeypatch)
    mine = torch.compile(lambda x: 2 * x)
    mine(torch.ones(3))
    monkeypatch.setattr(torch.compiler, "reset", lambda: pytest.fail("forgets what others compiled"))
    made = engine(text_recipe(tmp_path, train__compile=True), tmp_path / "run")
    made.run(stop_after=2)
    compiled = len(alive)
    assert compiled > 1
    made.run(stop_after=4)
    assert len(alive) == compiled  # the second block compiles nothing anew
    made.close()
    assert count(alive) == 1
    mine(torch.ones(3))
    assert len(alive) == compiled


def test_a_training_changes_no_state_of_the_process(tmp_path):
    from torch._dynamo import config

    torch.manual_seed(7)
    before = torch.get_rng_state(), config.recompile_limit, torch.get_float32_matmul_precision()
    train(text_recipe(tmp_path, model__dropout=0.5), tmp_path / "run", show=False, report=False)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (config.recompile_limit, torch.get_float32_matmul_precision()) == before[1:]


def test_settings():
    assert Train().total(7) == 1000
    assert Train(steps=5).total(7) == 5
    assert Train(epochs=1.5).total(7) == 10
    assert Train(epochs=0.01).total(7) == 1
    assert Train(tokens=100, bucket=False, packed=True).tokens == 100


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"steps": 1, "epochs": 1}, "train.epochs"),
        ({"betas": (0.9, 1.0)}, "train.betas"),
        ({"tokens": 100, "bucket": False}, "train.bucket"),
        ({"schedule": "flat", "min_lr_ratio": 0}, "train.min_lr_ratio"),
    ],
)
def test_settings_that_contradict_each_other(options, key):
    with pytest.raises(ValueError, match=key):
        Train(**options)


def test_a_run_knows_itself(tmp_path):
    run = go(text_recipe(tmp_path), tmp_path / "run")
    again = Run(tmp_path / "run")
    assert again.recipe == Recipe.load(tmp_path / "run") == text_recipe(tmp_path)
    assert again.about["samples"] == {"train": 24, "valid": 4}
    assert again.about["parameters"] == sum(weight.numel() for weight in run.model.parameters())
    assert again.about["seconds"] > 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["ranks"] == 1
    with refuses(file=tmp_path / "nowhere", hint="sciformer train"):
        Run(tmp_path / "nowhere")
