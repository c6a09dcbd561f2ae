"""Non-finite numbers, out of memory, and lost data workers."""

import math
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.data.loader import Fetch
from sciformer.objectives.base import Step
from sciformer.run import Run
from sciformer.training import checkpoint, engine
from tests.errors import refuses
from tests.faults import fault
from tests.training.test_step import gradients, updater
from tests.training.tiny import (
    STEPS,
    after_updates,
    assert_near,
    assert_same,
    at_step,
    fate,
    go,
    image_recipe,
    in_ranks,
    left,
    listening,
    noting,
    start_ranks,
)

SMOOTH = {"train.epsilon": 1e-4}  # otherwise Adam makes steps of full length out of the rounding of a gradient of zero


def distance(tensors, expected):
    """Largest difference between the weights of two models."""
    return max(float((tensors[name] - expected[name]).abs().max()) for name in expected if name.startswith("weights"))


def poison(patch, steps, value=np.nan, rank=0):
    """Corrupt one number of the first sample of a rank in each of these steps (from 0)."""
    fetch = Fetch.__getitem__

    def spoilt(self, step):
        batch = fetch(self, step)
        if step in steps and self.rank == rank:
            batch.stream.columns["patch"] = batch.stream.columns["patch"].astype(np.float32)
            batch.stream.columns["patch"][0, 0] = value
        return batch

    patch.setattr(Fetch, "__getitem__", spoilt)


def first_samples(recipe, folder, steps):
    """Id of the first sample of each of these steps."""
    ids = {}
    with noting(ids):
        go(recipe, folder)
    return [ids[step + 1][0][0] for step in steps]


@fault(
    "NaN or infinity in a batch",
    "the sample is reported, the update skipped, the optimizer unchanged; training continues",
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_in_a_batch(tmp_path, images, monkeypatch, value):
    recipe = images[0].change({"train.evaluate_every": STEPS, "train.save_every": 1, "train.keep": STEPS})
    (sample,) = first_samples(recipe, tmp_path / "whole", [6])
    poison(monkeypatch, [6], value)
    with listening() as said:
        run = go(recipe, tmp_path / "run")
    (line,) = (text for text in said if "not finite" in text)
    assert line.startswith("step 7: ")
    assert f"samples [{sample}]" in line
    assert [line for line in run.records if "left_out" in line] == [{"step": 7, "left_out": True, "samples": [sample]}]
    assert [line["step"] for line in run.records if "loss" in line] == [n + 1 for n in range(STEPS) if n != 6]
    before, after = (checkpoint.load(run.folder.checkpoints, log=pytest.fail, step=step).tensors for step in (6, 7))
    assert all(
        torch.equal(before[part][name], after[part][name]) for part in ("weights", "optimizer") for name in before[part]
    )
    assert all(tensor.isfinite().all() for tensor in left(run)[0].values())
    assert {float(value) for name, value in left(run)[0].items() if name.startswith("optimizer step")} == {STEPS - 1}


@fault("NaN in a batch, and a stop directly after it", "the same result as without the stop")
@pytest.mark.parametrize("stop", [6, 7, 8])
def test_nan_and_resume(tmp_path, images, monkeypatch, stop):
    recipe = images[0].change({"train.log_every": 3})
    poison(monkeypatch, [6, 7])
    reference = left(go(recipe, tmp_path / "whole"))
    go(recipe, tmp_path / "run", stop_after=stop)
    assert_same(go(recipe, tmp_path / "run"), reference)
    assert [line["step"] for line in reference[1]["records"] if "left_out" in line] == [7, 8]


@fault(
    "NaN in as many batches in a row as train.max_skipped", "stops with the sample ids; checkpoint and model are intact"
)
@pytest.mark.parametrize("stops", [(), (5, 6)])
def test_nan_in_a_row(tmp_path, images, monkeypatch, stops):
    recipe = images[0].change({"train.max_skipped": 3, "train.save_every": 1, "train.log_every": 100})
    (sample,) = first_samples(recipe, tmp_path / "whole", [6])
    poison(monkeypatch, [2, 4, 5, 6])
    for stop in stops:  # the count goes on over stops
        go(recipe, tmp_path / "run", stop_after=stop)
    with refuses(3, f"[{sample}]", hint="train.learning_rate"):
        go(recipe, tmp_path / "run")
    saved = checkpoint.load(tmp_path / "run" / "checkpoints", log=pytest.fail)
    assert (saved.step, saved.state["bad"]) == (6, 2)
    assert all(tensor.isfinite().all() for tensor in saved.tensors["weights"].values())
    assert all(weight.isfinite().all() for weight in Run(tmp_path / "run").model.parameters())
    go(recipe.change({"train.max_skipped": 9}), tmp_path / "run")  # neutral: one may go on


@fault("NaN on one of two ranks", "all ranks skip the update, and the sample is reported")
@pytest.mark.parametrize("shard", ["none", "full"])
def test_nan_on_one_rank(tmp_path, images, monkeypatch, shard):
    recipe = images[0].change({"train.shard": shard, "train.log_every": 2, **SMOOTH})
    poison(monkeypatch, [6], rank=1)
    in_ranks(lambda: go(recipe, tmp_path / "run"), tmp_path)
    monkeypatch.undo()
    fetch = Fetch.__getitem__
    ids = {}

    def spoilt(self, step):  # alone, the same sample is the third
        batch = fetch(self, step)
        if step == 6:
            batch.stream.columns["patch"][8, 0] = np.nan
            ids[step] = int(batch.ids[2])
        return batch

    monkeypatch.setattr(Fetch, "__getitem__", spoilt)
    reference = left(go(recipe, tmp_path / "one"))
    (line,) = (line for line in Run(tmp_path / "run").records if "left_out" in line)
    assert line == {"step": 7, "left_out": True, "samples": [ids[6]]}
    (tensors, found), (expected, wanted) = left(tmp_path / "run"), reference
    assert [entry.keys() for entry in found["records"]] == [entry.keys() for entry in wanted["records"]]
    assert distance(tensors, expected) < 1e-6


@fault("NaN or infinity in a sample of the validation part", "stops with the sample id, as no best model can be chosen")
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_in_validation(tmp_path, value, ranks):
    recipe = image_recipe(tmp_path)
    path = Path(recipe.data.files[0])
    opened, table = Assembly.open(recipe), dict(np.load(path))
    wanted = opened.splits.sources["valid"].load(0)["image"][3]
    (row,) = np.flatnonzero((table["image"] == wanted).all((1, 2)))
    table["image"][row, 0, 0] = value
    np.savez(path, **table, unused=np.full(30, np.nan))
    words = ("valid", "1 sample", "[3]", "valid loss is nan")
    if ranks == 1:
        with refuses(*words):
            go(recipe, tmp_path / "run")
        return
    children = start_ranks(lambda: go(recipe, tmp_path / "run"), tmp_path)
    assert [fate(child) for child in children] == [1, 1]
    for rank in range(2):
        said = (tmp_path / f"rank-{rank}").read_text()
        assert said.startswith("UserError: ")
        assert all(word in said for word in words)


@fault("a validation loss of NaN for finite data", "reported; never the best loss, and no obstacle for later ones")
def test_nan_of_a_model(tmp_path, images, monkeypatch):
    real, calls = engine.evaluate, []

    def judged(*arguments, **options):
        calls.append(1)
        found = real(*arguments, **options)
        return replace(found, scores={**found.scores, "loss": np.nan}) if len(calls) in (1, 3) else found

    monkeypatch.setattr(engine, "evaluate", judged)
    with listening() as said:
        run = go(images[0], tmp_path)
    steps = [text.partition(":")[0] for text in said if ": valid loss is nan" in text]
    assert steps == ["step 5", f"step {STEPS}"]
    assert left(run)[1]["about"]["step"] == 10


@fault("a data worker killed", "restarted and reported; the same result")
def test_worker_killed(tmp_path, texts):
    recipe, reference = texts

    def kill():
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    with listening() as said, at_step(5, kill):
        run = go(recipe.change({"train.workers": 2}), tmp_path)
    assert any("data worker" in text for text in said)
    assert_same(run, reference)


@fault("data workers killed repeatedly", "stops after three restarts, with a hint; the same command continues")
def test_workers_killed_for_ever(tmp_path, texts, monkeypatch):
    recipe, reference = texts
    parent, fetch = os.getpid(), Fetch.__getitem__

    def deadly(self, step):
        if step == 6 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return fetch(self, step)

    monkeypatch.setattr(Fetch, "__getitem__", deadly)
    with refuses(4, key="train.workers"):
        go(recipe.change({"train.workers": 1}), tmp_path)
    assert_same(go(recipe, tmp_path), reference)


@fault(
    "out of memory for a batch",
    "processed in halves, and reported; weights within 1e-6 without dropout, also after a stop",
)
def test_out_of_memory(tmp_path, texts, monkeypatch):
    recipe = texts[0].change({"model.dropout": 0.0, **SMOOTH})
    reference = left(go(recipe, tmp_path / "whole"))
    forward, sizes = Step.forward, []

    def narrow(step, inputs, outputs=False):
        size = len(next(iter(inputs.stream.columns.values())))
        sizes.append(size)
        if step.training and size > 1:
            raise torch.OutOfMemoryError("no memory")
        return forward(step, inputs, outputs)

    monkeypatch.setattr(Step, "forward", narrow)
    with listening() as said:
        go(recipe, tmp_path / "run", stop_after=7)
        assert sizes[:3] == [4, 2, 1]
        assert sum(text.startswith("out of memory: ") for text in said) == 2
        run = go(recipe, tmp_path / "run")
    assert sum("out of memory" in text for text in said) == 2  # remembered
    assert max(sizes[3:]) == 1  # also where it is judged
    assert_near(run, reference, 1e-5)
    assert distance(left(run)[0], reference[0]) < 1e-6


@fault("out of memory in evaluation", "evaluated in halves; the weights are the same")
def test_out_of_memory_in_judging(tmp_path, texts, monkeypatch):
    recipe, reference = texts
    forward, sizes = Step.forward, []

    def narrow(step, inputs, outputs=False):
        size = len(next(iter(inputs.stream.columns.values())))
        if not step.training:
            sizes.append(size)
            if size > 1:
                raise torch.OutOfMemoryError("no memory")
        return forward(step, inputs, outputs)

    monkeypatch.setattr(Step, "forward", narrow)
    run = go(recipe, tmp_path / "run")
    assert max(sizes) > 1
    assert sizes.count(1) % 3 == 0  # three evaluations of all
    assert_near(run, reference, 1e-5)


@fault("out of memory for a single sample", "stops with a hint")
def test_out_of_memory_for_good(tmp_path, texts, monkeypatch):
    def full(step, inputs, outputs=False):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(Step, "forward", full)
    with refuses(" 1 sample "):
        go(texts[0], tmp_path)


@fault("another number of threads or cores", "run.json records them; only equal numbers promise the same result")
def test_threads_are_recorded(tmp_path, texts, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    go(texts[0], tmp_path / "run", stop_after=1)
    assert Run(tmp_path / "run").about["device"] == "cpu (2 threads)"


def spoil(engine, value=math.inf):
    with torch.no_grad():
        next(iter(engine.step.model.parameters())).view(-1)[0] = value


@fault(
    "weights that are not finite (a learning rate that is much too high)",
    "stops before they are saved, with the command that continues from the last checkpoint",
)
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_weights_that_are_not_finite(tmp_path, texts, value):
    recipe, _ = texts
    recipe = recipe.change({"train.save_every": 1, "train.evaluate_every": 100})
    with (
        after_updates(lambda engine, batch: spoil(engine, value) if engine.number == 4 else None),
        refuses("step 4", "embedding", key="train.learning_rate", hint="--accept-changes") as refused,
    ):
        go(recipe, tmp_path)
    assert "step 3" in refused.value.hint
    assert checkpoint.steps(tmp_path / "checkpoints") == [2, 3]
    for step in (2, 3):
        saved = checkpoint.load(tmp_path / "checkpoints", log=pytest.fail, step=step)
        assert all(one.isfinite().all() for one in saved.tensors["weights"].values())
    run = go(recipe.change({"train.learning_rate": 0.001}), tmp_path, accept_changes=True)
    assert run.scores["loss"] < 10


@fault(
    "a training that diverges between two evaluations",
    "the last checkpoint with a finite loss in an evaluation is never rotated away",
)
def test_divergence_keeps_the_last_evaluated_checkpoint(tmp_path, texts):
    recipe, _ = texts
    recipe = recipe.change({"train.save_every": 1, "train.evaluate_every": 4})
    with after_updates(lambda engine, batch: spoil(engine, 1e30) if engine.number > 4 else None):
        go(recipe, tmp_path, stop_after=7)
    assert checkpoint.steps(tmp_path / "checkpoints") == [4, 6, 7]
    go_back = str(tmp_path / "checkpoints")
    with (
        after_updates(lambda engine, batch: spoil(engine, 1e30)),
        refuses("not finite", key="train.learning_rate", hint=go_back) as refused,
    ):
        go(recipe, tmp_path)
    assert "step 4" in refused.value.hint
    assert 4 in checkpoint.steps(tmp_path / "checkpoints")


@fault(
    "eight samples of different lengths in micro-batches of 8, 4, 3 or 1",
    "without dropout, the same gradient within 1e-12 in double precision",
)
@pytest.mark.parametrize("packed", [False, True])
def test_micro_batches(tmp_path, packed):
    """1 x 8 = 2 x 4 = 3 x 3 = 8 x 1, with samples of different length: one sum, divided once."""
    results = []
    for micro in (None, 8, 4, 3, 1):
        found, batch = updater(tmp_path, micro_batch=micro, packed=packed)
        loss = found.gradient(batch, 0, batch.count)
        results.append((loss, gradients(found)))
    for loss, gradient in results[1:]:
        assert abs(float(loss - results[0][0])) < 1e-12
        assert float((gradient - results[0][1]).abs().max()) < 1e-12
    assert float(results[0][1].abs().max()) > 1e-3
