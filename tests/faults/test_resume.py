"""A run that is stopped, killed or moved ends like an undisturbed run."""

import ast
import contextlib
import os
import random
import signal
import time

import pytest
import torch

from sciformer.run import Run
from sciformer.training import checkpoint
from sciformer.training.engine import Engine
from tests.faults import fault
from tests.shipped import tiny
from tests.training import at_call
from tests.training.tiny import (
    BATCHES,
    STEPS,
    assert_near,
    assert_same,
    at_step,
    fate,
    go,
    image_recipe,
    in_ranks,
    left,
    noting,
    start,
    text_recipe,
)


@fault("stopped at any step: 0, 1, in the middle, at the end of an epoch, before the last", "the same result")
@pytest.mark.parametrize("stop", [0, 1, 5, BATCHES, 2 * BATCHES, STEPS - 1])
def test_stop_and_resume(tmp_path, texts, stop):
    recipe, reference = texts
    seen, expected = {}, {}
    with noting(expected):
        go(recipe, tmp_path / "whole")
    with noting(seen):
        paused = go(recipe, tmp_path / "run", stop_after=stop)
        assert checkpoint.steps(paused.folder.checkpoints)[-1:] == ([stop] if stop else [])
        assert_same(go(recipe, tmp_path / "run"), reference)
    assert seen == expected  # every batch once, with the same samples
    assert len(seen) == STEPS


@fault("stopped twice within one epoch", "the same result")
def test_two_stops_in_one_epoch(tmp_path, texts):
    recipe, reference = texts
    for stop in (BATCHES + 1, BATCHES + 2, None):
        go(recipe, tmp_path, stop_after=stop)
    assert_same(tmp_path, reference)


@fault("restarted after the last step", "reported as complete; nothing changes")
def test_resume_a_complete_run(tmp_path, texts):
    recipe, reference = texts
    go(recipe, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("checkpoints/*/*")}
    assert_same(go(recipe, tmp_path), reference)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("checkpoints/*/*")}


@fault("killed after the last step, before the mean of the last checkpoints was saved", "the next start saves it")
def test_killed_before_the_mean(tmp_path, texts, monkeypatch):
    recipe = texts[0].change({"train.average_last": 2})
    whole = left(go(recipe, tmp_path / "whole"))
    assert whole[1]["about"]["mean_of"] == [12, 14]
    monkeypatch.setattr(Engine, "average_checkpoints", lambda engine: os.kill(os.getpid(), signal.SIGKILL))
    assert fate(start(lambda: go(recipe, tmp_path / "run"))) == -signal.SIGKILL
    monkeypatch.undo()
    assert_same(go(recipe, tmp_path / "run"), whole)


@fault("resumed with other numbers of data workers (0, 2, 1)", "the same result")
def test_other_workers(tmp_path, texts):
    recipe, reference = texts
    for workers, stop in ((0, 3), (2, 8), (1, None)):
        go(recipe.change({"train.workers": workers}), tmp_path, stop_after=stop)
    assert_same(tmp_path, reference)


@fault("resumed with other numbers of ranks (2, 1, 2)", "the same samples; without dropout, loss within 1e-6")
@pytest.mark.parametrize("shard", ["none", "full"])
def test_other_ranks(tmp_path, texts, shard):
    recipe = texts[0].change({"model.dropout": 0.0, "train.shard": shard})
    expected, seen = {}, {}
    with noting(expected):
        reference = left(go(recipe, tmp_path / "one"))

    def in_two(stop):
        def work():
            ids = {}
            with noting(ids):
                go(recipe, tmp_path / "run", stop_after=stop)
            return ids

        first, second = (ast.literal_eval(answer) for answer in in_ranks(work, tmp_path))
        seen.update({step: [first[step][0] + second[step][0]] for step in first})

    in_two(4)
    with noting(seen):
        go(recipe, tmp_path / "run", stop_after=8)
    in_two(None)
    assert seen == expected
    assert_near(tmp_path / "run", reference, 1e-6)
    assert Run(tmp_path / "run").about["ranks"] == 2


@fault("resumed from shards (FSDP2) with fewer ranks (3, 2, 1)", "without dropout, the same log within 1e-6")
def test_fewer_ranks(tmp_path, texts):
    recipe = texts[0].change({"model.dropout": 0.0, "train.shard": "full"})
    reference = left(go(recipe, tmp_path / "one"))
    for world, stop in ((3, 4), (2, 9)):
        in_ranks(lambda stop=stop: go(recipe, tmp_path / "run", stop_after=stop), tmp_path, world)
        shards = [*(tmp_path / f"run/checkpoints/step-{stop:07d}").glob("weights-*.safetensors")]
        assert len(shards) == world
    assert_near(go(recipe, tmp_path / "run"), reference, 1e-6)


@fault("two ranks stopped and resumed", "the same result as two ranks without the stop")
@pytest.mark.parametrize("shard", ["none", "full"])
def test_ranks_stopped_and_resumed(tmp_path, texts, shard):
    recipe = texts[0].change({"train.shard": shard, "train.workers": 1})

    def work():
        go(recipe, tmp_path / "whole")
        go(recipe, tmp_path / "run", stop_after=5)
        go(recipe, tmp_path / "run")

    in_ranks(work, tmp_path)
    assert_same(tmp_path / "run", left(tmp_path / "whole"))


@fault("`kill -9` at fifty random times, with a save per step", "continues from the last save; the same result")
def test_killed_at_random_instants(tmp_path, texts):
    recipe = texts[0].change({"train.save_every": 1, "train.steps": 60})
    reference = left(go(recipe, tmp_path / "whole"))
    rng = random.Random(0)
    kills = finished = 0
    saved = -1
    note = tmp_path / "saved"

    began, ring = os.pipe()

    def work():
        save, loop = Engine._save, Engine.run

        def noted(engine):
            save(engine)
            note.write_text(str(engine.number))  # by now it must be on the disk

        def rung(engine, stop):
            os.write(ring, b"!")
            loop(engine, stop)

        Engine._save, Engine.run = noted, rung
        go(recipe, tmp_path / f"run-{finished}")

    while kills < 50:
        child = start(work)
        if kills % 5:  # once in five times it may be killed before its first step
            os.read(began, 1)
        time.sleep(rng.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        kills += fate(child) == -signal.SIGKILL
        announced = int(note.read_text() or -1) if note.exists() else -1
        run = tmp_path / f"run-{finished}"
        found = checkpoint.load(run / "checkpoints", log=pytest.fail) if run.exists() else None
        step = -1 if found is None else found.step
        assert step >= max(saved, announced)
        saved = step
        if step == 60:
            assert_same(go(recipe, run), reference)
            finished, saved = finished + 1, -1
            note.unlink()
    assert_same(go(recipe, tmp_path / f"run-{finished}"), reference)
    os.close(began)
    os.close(ring)


@fault(
    "two ranks (DDP or FSDP2) or micro-batches instead of one process, with samples of different lengths",
    "without dropout, the same losses and scores within 1e-5 over all steps",
)
@pytest.mark.parametrize("shard", ["none", "full"])
@pytest.mark.parametrize("micro", [None, 1])
@pytest.mark.parametrize("make", [text_recipe, image_recipe])
def test_two_ranks_are_one_process(tmp_path, make, micro, shard):
    recipe = make(tmp_path, model__dropout=0.0, train__batch=5, train__steps=20, train__ema=0.9)
    recipe = recipe.change({"train.log_every": 1, "train.epsilon": 1e-6, "train.schedule": "constant"})
    reference = left(go(recipe, tmp_path / "one"))
    changed = recipe.change({"train.shard": shard, "train.micro_batch": micro})
    in_ranks(lambda: go(changed, tmp_path / "two"), tmp_path)
    assert_near(tmp_path / "two", reference, 1e-5)
    tensors = left(tmp_path / "two")[0]
    assert tensors.keys() == reference[0].keys()
    for name, tensor in reference[0].items():
        torch.testing.assert_close(tensors[name], tensor, rtol=1e-3, atol=1e-4)


@fault("`kill -9` at any file operation of a save", "the partial checkpoint is ignored and removed; the same result")
@pytest.mark.parametrize("fatal", [2, 5, 9, 14, 20, 30])
def test_killed_inside_a_save(tmp_path, texts, fatal):
    recipe, reference = texts
    go(recipe, tmp_path, stop_after=4)

    def work():
        with contextlib.ExitStack() as patched:
            die = at_call(fatal, lambda: os.kill(os.getpid(), signal.SIGKILL))
            with at_step(7, lambda: patched.enter_context(die)):
                go(recipe, tmp_path)

    assert fate(start(work)) == -signal.SIGKILL
    assert checkpoint.steps(tmp_path / "checkpoints")[-1] in (4, 8)
    assert_same(go(recipe, tmp_path), reference)
    assert not list((tmp_path / "checkpoints").glob(".*"))


@fault("`kill -9` between two saves of a model of pictures and captions, or of two views", "the same result")
@pytest.mark.parametrize("name", ["coca", "show-attend-tell", "caption-transformer", "simclr"])
def test_a_model_of_pictures_is_killed(tmp_path, name):
    recipe = tiny(f"images/{name}", tmp_path)
    changes = {"train.steps": 6, "train.save_every": 2, "train.evaluate_every": 3, "data.cache": ""}
    recipe = recipe.change(changes | ({"model.dropout": 0.1} if name != "simclr" else {}))
    reference = left(go(recipe, tmp_path / "whole"))

    def work():
        with at_step(3, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            go(recipe, tmp_path / "run")

    assert fate(start(work, seconds=120)) == -signal.SIGKILL
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1:] == [2]
    assert_same(go(recipe, tmp_path / "run"), reference)
