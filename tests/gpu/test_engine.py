"""The engine on a GPU: compiled, recorded, in half precision, it learns what it learns on the CPU."""

import gc

import numpy as np
import pytest
import torch

from sciformer.nn.losses import IGNORE_INDEX, total_cross_entropy
from sciformer.recipe import Recipe
from sciformer.run import train
from sciformer.training import cuda_graph as recorded
from sciformer.training.step import OptimizerStep

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = ["".join(chr(97 + (i * j) % 13) for j in range(3 + (7 * i) % 60)) for i in range(1, 400)]
    path.write_text("\n".join(lines))
    return path


def recipe(text, **changes):
    base = {
        "data": {"kind": "text", "files": [str(text)], "documents": "line", "split": {"valid": 0.1, "test": 0.0}},
        "tokens": {"kind": "text", "context": 64},
        "model": {"kind": "decoder", "dim": 32, "depth": 2, "heads": 2},
        "objective": {"kind": "next_token"},
        "train": {"steps": 40, "batch": 16, "warmup": 5, "learning_rate": 3e-3, "evaluate_every": 20, "device": "cuda"},
    }
    return Recipe.from_dict(base, changes)


def losses(run):
    return [line["valid_loss"] for line in run.records if "valid_loss" in line]


@pytest.fixture(scope="module")
def on_cpu(text, tmp_path_factory):
    return losses(
        train(recipe(text, **{"train.device": "cpu"}), tmp_path_factory.mktemp("cpu"), show=False, report=False)
    )


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"train.compile": False, "train.precision": "float32"}, 2e-3),
        ({"train.cuda_graphs": False, "train.precision": "float32"}, 2e-3),
        ({"train.precision": "float32"}, 2e-3),
        ({"train.precision": "float32", "train.cuda_graphs": "whole"}, 2e-3),
        ({"train.precision": "float32", "train.cuda_graphs": "whole", "train.packed": True}, 2e-3),
        ({"train.precision": "float32", "train.micro_batch": 5}, 2e-3),
        ({"train.compile": False, "train.precision": "float32", "train.packed": True}, 2e-3),
        ({}, 3e-2),
    ],
    ids=["eager", "compiled", "recorded", "whole", "whole-packed", "micro", "packed", "half"],
)
def test_every_way_learns_the_same(text, on_cpu, tmp_path, changes, tolerance):
    found = losses(train(recipe(text, **changes), tmp_path / "run", show=False, report=False))
    assert len(found) == len(on_cpu) == 2
    assert found == pytest.approx(on_cpu, abs=tolerance)
    assert found[1] < found[0]


def test_a_run_goes_on_where_it_was_left(text, tmp_path):
    exact = {"train.precision": "float32", "model.dropout": 0.1, "train.ema": 0.9}
    whole = train(recipe(text, **exact), tmp_path / "whole", show=False, report=False)
    train(recipe(text, **exact), tmp_path / "parts", show=False, report=False, stop_after=17)
    parts = train(recipe(text, **exact), tmp_path / "parts", show=False, report=False)
    assert losses(parts) == pytest.approx(losses(whole), abs=1e-3)


@pytest.mark.parametrize("graphs", [True, "whole"])
def test_a_training_frees_its_memory_and_keeps_what_others_compiled(text, tmp_path, graphs):
    compiled = []

    def backend(graph, examples):
        compiled.append(graph)
        return graph.forward

    mine = torch.compile(lambda x: 2 * x, backend=backend)
    mine(torch.ones(3, device="cuda"))
    free = []
    for number in range(2):
        train(recipe(text, **{"train.cuda_graphs": graphs}), tmp_path / f"run{number}", show=False, report=False)
        gc.collect()
        torch.cuda.empty_cache()
        free.append(torch.cuda.memory_reserved())
    mine(torch.ones(3, device="cuda"))
    assert len(compiled) == 1
    assert free[1] <= free[0] + (1 << 21)  # a training leaves nothing behind that the next one adds to


@pytest.mark.parametrize("packed", [False, True])
def test_a_step_recorded_whole_is_the_step(text, tmp_path, monkeypatch, packed):
    """With dropout: what is random is the same, kernel by kernel and recorded."""
    both = {"train.precision": "float32", "model.dropout": 0.1, "train.packed": packed, "train.log_every": 1}
    expected = train(recipe(text, **both, **{"train.cuda_graphs": False}), tmp_path / "not", show=False, report=False)
    taken, capture = [], recorded.capture
    monkeypatch.setattr(recorded, "capture", lambda work, pool: taken.append(work) or capture(work, pool))
    monkeypatch.setattr(OptimizerStep, "_record_halves", lambda self: pytest.fail("it cannot be recorded"))
    found = train(recipe(text, **both, **{"train.cuda_graphs": "whole"}), tmp_path / "whole", show=False, report=False)
    losses = [[line["loss"] for line in run.records if "loss" in line] for run in (expected, found)]
    assert len(losses[0]) == 40
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert 0 < len(taken) < 10


def test_a_bad_sample_changes_no_weight(tmp_path):
    images = np.random.default_rng(0).normal(size=(64, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", image=images, label=(images.mean((1, 2)) > 0).astype(int))
    base = {
        "data": {"kind": "arrays", "files": [str(tmp_path / "x.npz")]},
        "tokens": {"kind": "patches", "patch": 4},
        "model": {"kind": "encoder", "dim": 16, "depth": 1, "heads": 2},
        "objective": {"kind": "classify"},
        "train": {"steps": 12, "batch": 8, "warmup": 0, "device": "cuda", "log_every": 1, "max_skipped": 50},
    }
    from sciformer.data.loader import Fetch

    fetch = Fetch.__getitem__

    def poisoned(self, step):
        batch = fetch(self, step)
        if step == 5:
            batch.stream.columns["patch"][0] = np.nan
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fetch, "__getitem__", poisoned)
        run = train(Recipe.from_dict(base), tmp_path / "run", show=False, report=False)
    out = [line["step"] for line in run.records if line.get("left_out")]
    assert out == [6]
    assert all(torch.isfinite(weight).all() for weight in run.model.parameters())


@pytest.mark.parametrize("half", [False, True])
def test_the_loss_in_chunks_is_the_loss(half):
    torch.manual_seed(0)
    hidden, weight = torch.randn(1000, 64, device="cuda"), 0.1 * torch.randn(777, 64, device="cuda")
    target = torch.randint(777, (1000,), device="cuda")
    target[::7] = IGNORE_INDEX
    found = []
    for chunk in (0, 300):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = total_cross_entropy(h, w, target, chunk)
        loss.backward()
        found.append((loss.detach(), h.grad, w.grad))
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 1e-4, "atol": 1e-4}
    for plain, chunked in zip(*found):
        torch.testing.assert_close(chunked, plain, **tolerance)
