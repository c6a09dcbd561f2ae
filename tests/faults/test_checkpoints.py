"""Truncated, corrupt, missing, foreign and unwritable files."""

import json
import os
import re
import resource
import signal

import pytest

from sciformer.run import Run
from sciformer.train import checkpoint
from sciformer.train.weights import load_weights
from tests.errors import refuses
from tests.faults import fault
from tests.train.tiny import assert_same, at_step, fate, go, in_ranks, listening, start

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) * 6 // 10] ^= 4
    path.write_bytes(data)


@fault(
    "the last checkpoint truncated, corrupt, or missing a file", "reported; the previous one is used; the same result"
)
@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", [cut, flip, os.unlink])
def test_damaged_checkpoint(tmp_path, texts, name, damage):
    recipe, reference = texts
    go(recipe, tmp_path, stop_after=10)
    assert checkpoint.steps(tmp_path / "checkpoints") == [8, 10]
    damage(tmp_path / "checkpoints" / "step-0000010" / name)
    with listening() as said:
        go(recipe, tmp_path)
    assert any("step-0000010 cannot be used" in text for text in said)
    assert any(text.endswith("from step 8") for text in said)
    assert_same(tmp_path, reference)


@fault("all checkpoints damaged", "refused, with the reason for each; nothing is overwritten")
def test_all_checkpoints_damaged(tmp_path, texts):
    recipe, _ = texts
    go(recipe, tmp_path, stop_after=10)
    for path in tmp_path.glob("checkpoints/step-*/weights.safetensors"):
        flip(path)
    with refuses("step-0000010", "step-0000008", "weights.safetensors", file=tmp_path / "checkpoints"):
        go(recipe, tmp_path)
    assert checkpoint.steps(tmp_path / "checkpoints") == [8, 10]


def until_full(recipe, folder, step, room):
    """Error of a training in which no file can exceed `room` bytes from this step on."""

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            with at_step(step, lambda: limit(room)):
                go(recipe, folder / "run")
        finally:
            limit(resource.RLIM_INFINITY)

    assert fate(start(work, folder / "answer")) == 1
    return (folder / "answer").read_text()


@fault("the disk full while a checkpoint is written", "stops; no partial files; the same command continues")
@pytest.mark.parametrize("room", [100, 4000])
def test_disk_full(tmp_path, texts, room):
    recipe, reference = texts
    said = until_full(recipe, tmp_path, 8, room)
    assert said.startswith("UserError: ")
    for mention in (tmp_path / "run" / "checkpoints" / "step-0000008", "File too large", "(step 4)"):
        assert str(mention) in said
    names = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names == {"latest", "step-0000004"}
    assert_same(go(recipe, tmp_path / "run"), reference)


@fault("the disk full while the best model is written", "stops with an error; the older best model stays intact")
def test_disk_full_at_the_best_model(tmp_path, texts):
    recipe, reference = texts
    said = until_full(recipe, tmp_path, 10, 4000)
    assert said.startswith("UserError: ")
    assert str(tmp_path / "run" / "model") in said
    assert "File too large" in said
    assert load_weights(tmp_path / "run" / "model")[1]["step"] == 5
    assert {path.name for path in (tmp_path / "run" / "model").iterdir()} == {"weights.safetensors", "statistics.json"}
    assert_same(go(recipe, tmp_path / "run"), reference)


@fault("the disk full for the first of two ranks", "both stop with the same message")
def test_disk_full_for_one_rank(tmp_path, texts):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))

    with at_step(8, limit, rank=0):
        first, second = in_ranks(lambda: go(texts[0], tmp_path / "run"), tmp_path, status=1)
    assert first == second
    assert first.startswith("UserError: ")
    assert "(step 4)" in first


@fault("a run folder that cannot be written to", "refused before the data are read")
def test_folder_that_cannot_be_written(tmp_path, texts, monkeypatch):
    (tmp_path / "file").write_text("")
    with refuses(tmp_path / "file", file=tmp_path / "file" / "run", hint="--run"):
        go(texts[0], tmp_path / "file" / "run")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    with refuses("Read-only file system", file=tmp_path / "run"):
        go(texts[0], tmp_path / "run")


@fault("a pickle file placed into a run folder", "never opened; reported")
def test_smuggled_pickle(tmp_path, texts):
    recipe, reference = texts
    go(recipe, tmp_path, stop_after=10)
    bomb = f"cposix\nsystem\n(S'touch {tmp_path}/exploded'\ntR.".encode()
    for place in (
        "checkpoints/step-0000010/weights.pt",
        "checkpoints/latest.pt",
        "model/weights.pt",
        "model/model.bin",
    ):
        (tmp_path / place).write_bytes(bomb)
    with listening() as said:
        run = go(recipe, tmp_path)
    assert any("'weights.pt'" in text and "step-0000010" in text for text in said)
    assert_same(run, reference)
    assert run.evaluate("valid").scores["loss"] == pytest.approx(run.scores["loss"], rel=1e-6)
    (tmp_path / "model" / "weights.safetensors").rename(tmp_path / "weights")
    with refuses("weights.safetensors", file=tmp_path / "model" / "weights.safetensors") as refused:
        _ = Run(tmp_path).model
    assert re.search(r"model\.bin|weights\.pt\b", refused.value.hint)
    (tmp_path / "weights").rename(tmp_path / "model" / "weights.safetensors")
    (tmp_path / "checkpoints" / "step-0000014" / "weights.safetensors").write_bytes(bomb)
    with listening() as said:
        go(recipe, tmp_path)
    assert any("step-0000014 cannot be used" in text for text in said)
    assert not (tmp_path / "exploded").exists()


@fault("symbolic links in a run folder from elsewhere", "never followed when writing: replaced or refused")
@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "checkpoints", "model", ".run.json.partial"])
def test_links(tmp_path, texts, name):
    recipe, _ = texts
    path, victim = tmp_path / "run" / name, tmp_path / "victim"
    go(recipe, tmp_path / "run", stop_after=5)
    if path.is_dir():
        path.rename(victim)
    else:
        path.unlink(missing_ok=True)
        victim.write_text('{"step": 1}\n')
    path.symlink_to(victim)

    def seen():
        return [(found, found.stat().st_mtime_ns) for found in sorted((victim, *victim.rglob("*")))]

    before = seen()
    if name == ".run.json.partial":
        go(recipe, tmp_path / "run")
    else:
        with refuses("link", path if name != "metrics.jsonl" else name, hint="--run"):
            go(recipe, tmp_path / "run")
    assert seen() == before


@fault("the weights of a finished model modified or damaged", "refused, because the hash differs")
def test_tampered_model(tmp_path, texts):
    run = go(texts[0], tmp_path)
    path = tmp_path / "model" / "weights.safetensors"
    flip(path)
    with refuses(file=path):
        _ = Run(run.path).model
    cut(path)
    with refuses(file=path):
        _ = Run(run.path).model


@fault("two processes in one run folder", "the second is refused, with the process id and host of the first")
def test_two_processes(tmp_path, texts):
    recipe, reference = texts
    began, ring = os.pipe()
    ended, leave = os.pipe()

    def work():
        with at_step(2, lambda: (os.write(ring, b"!"), os.read(ended, 1))):
            go(recipe, tmp_path / "run")

    child = start(work)
    os.read(began, 1)
    with refuses(child, os.uname().nodename, file=tmp_path / "run", hint=f"kill {child}"):
        go(recipe, tmp_path / "run", fresh=True)
    os.write(leave, b"!")
    assert fate(child) == 0
    assert_same(tmp_path / "run", reference)
    for descriptor in (began, ring, ended, leave):
        os.close(descriptor)


@fault("a log whose last line is incomplete after a kill", "the incomplete line is removed; the same result")
def test_torn_log(tmp_path, texts):
    recipe, reference = texts
    go(recipe, tmp_path, stop_after=10)
    with open(tmp_path / "metrics.jsonl", "a") as log:
        log.write(json.dumps({"step": 11, "loss": 3.0}) + '\n{"step": 12, "lo')
    assert_same(go(recipe, tmp_path), reference)
