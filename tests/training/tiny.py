"""Trainings of a second, children and ranks by fork from this warm process, and what a run left, to compare."""

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from sciformer.training import checkpoint
from sciformer.training.distributed import Ranks
from sciformer.training.engine import Engine
from sciformer.training.folder import Folder
from sciformer.training.progress import ProgressReporter
from sciformer.training.weights import load_weights

STEPS = 14  # two epochs of six batches and a bit
BATCHES = 6
TRAIN = {"steps": STEPS, "batch": 4, "warmup": 2, "learning_rate": 0.01, "log_every": 1, "save_every": 4}
TRAIN |= {"evaluate_every": 5, "device": "cpu"}


def text_recipe(folder, **changes):
    """Short lines of different length, a model with dropout, averaged weights: all that is random plays a part."""
    path = Path(folder) / "lines.txt"
    if not path.exists():
        rng = np.random.default_rng(0)
        letters = np.array(list("abcde "))
        lines = ["".join(rng.choice(letters[:5], 1)) + "".join(rng.choice(letters, n)) for n in rng.integers(0, 10, 28)]
        path.write_text("\n".join(lines))
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "text", "files": [str(path)], "documents": "line", "split": {"valid": 0.15, "test": 0.0}},
            "tokens": {"kind": "text", "context": 12},
            "model": {"kind": "decoder", "dim": 8, "depth": 1, "heads": 2, "dropout": 0.2},
            "objective": {"kind": "next_token"},
            "train": {**TRAIN, "ema": 0.9, "log_every": 3},
        }
    )
    return with_changes(recipe, changes)


def image_recipe(folder, **changes):
    """Images of two kinds, with real numbers in which a NaN can hide."""
    path = Path(folder) / "images.npz"
    if not path.exists():
        rng = np.random.default_rng(0)
        label = np.arange(30) % 2
        images = (rng.normal(size=(30, 4, 4)) + label[:, None, None]).astype(np.float32)
        np.savez(path, image=images, label=label)
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "arrays", "files": [str(path)], "split": {"valid": 0.2, "test": 0.0}},
            "tokens": {"kind": "patches", "patch": 2},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "classify"},
            "train": TRAIN,
        }
    )
    return with_changes(recipe, changes)


def with_changes(recipe, changes):
    """The recipe with the changes of keyword arguments: `train__batch=8`."""
    return recipe.change({key.replace("__", "."): value for key, value in changes.items()})


def go(recipe, run, **options):
    """Train, or go on, with whatever random state the process happens to have."""
    torch.manual_seed(time.monotonic_ns() % 2**32)
    return train(recipe, run, **{"show": False, "report": False, **options})


def left(run):
    """All that a run left that must not depend on how often it was stopped: tensors by name, and the rest."""
    run = run if isinstance(run, Run) else Run(run)
    saved = checkpoint.load(run.folder.checkpoints, log=pytest.fail)
    tensors = {f"{stem} {name}": tensor for stem, part in saved.tensors.items() for name, tensor in part.items()}
    weights, about = load_weights(run.folder.model)
    tensors |= {f"model {name}": tensor for name, tensor in weights.items()}
    records = [{key: value for key, value in line.items() if key != "tokens_per_s"} for line in run.records]
    return tensors, {"step": saved.step, "state": saved.state, "about": about, "records": records}


def assert_same(run, reference):
    """Bit for bit."""
    (tensors, rest), (expected, expected_rest) = left(run), reference
    assert rest == expected_rest
    assert tensors.keys() == expected.keys()
    assert [name for name in tensors if not torch.equal(tensors[name], expected[name])] == []


def assert_near(run, reference, bound):
    """The same lines of the log, with numbers that differ by less than the bound."""
    lines, expected = left(run)[1]["records"], reference[1]["records"]
    assert [line.keys() for line in lines] == [line.keys() for line in expected]
    apart = {(i, key): abs(line[key] - expected[i][key]) for i, line in enumerate(lines) for key in line}
    assert {key: value for key, value in apart.items() if not value <= bound} == {}


def engine(recipe, folder):
    """The engine of a recipe, on the CPU and without a word."""
    made = Folder(folder)
    made.create()
    return Engine(Assembly.open(recipe), made, Ranks(torch.device("cpu")), ProgressReporter(show=False))


@contextlib.contextmanager
def after_updates(act):
    """Call `act(engine, batch)` after every update."""
    before = Engine._update_average

    def remember(engine, updated, batch):
        before(engine, updated, batch)
        act(engine, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "_update_average", remember)
        yield


def at_step(number, act, rank=None):
    """Call `act` after the update of this number (in one rank only, if given)."""
    return after_updates(
        lambda engine, batch: act() if engine.number == number and rank in (None, engine.ranks.rank) else None
    )


@contextlib.contextmanager
def listening():
    """What a training says, line by line."""
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressReporter, "log", lambda teller, text: said.append(text))
        yield said


def noting(ids):
    """Note the ids of the samples of every update, by its number."""
    return after_updates(lambda engine, batch: ids.setdefault(engine.number, []).append(batch.ids.tolist()))


def start(work, answer=None, seconds=60):
    """Fork a child that does the work; what it returned, or how it failed, it writes to the file `answer`."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.alarm(seconds)
        try:
            text, code = str(work()), 0
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        if answer is not None:
            Path(answer).write_text(text)
    finally:
        os._exit(code)  # whatever happens, a child never goes on as a second pytest


def fate(child):
    """The exit code of a child, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def start_ranks(work, folder, world=2, **environment):
    """Fork the ranks of one run, as torchrun would start them; answers go to `folder`/rank-0 and so on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def be(rank):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(world), RANK=str(rank))
        os.environ.update(LOCAL_RANK=str(rank), **environment)
        return work()

    return [start(lambda rank=rank: be(rank), Path(folder) / f"rank-{rank}") for rank in range(world)]


def in_ranks(work, folder, world=2, status=0, **environment):
    """The answers of the ranks of one run, all of which must end with this exit status."""
    children = start_ranks(work, folder, world, **environment)
    fates = [fate(child) for child in children]
    answers = [(Path(folder) / f"rank-{rank}").read_text() for rank in range(world)]
    assert fates == [status] * world, answers
    return answers
