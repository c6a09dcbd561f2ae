"""Truncated, corrupt, missing, foreign and unwritable files."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal

import pytest

from sciformer.cli.main import main
from sciformer.files.seal import Damaged
from sciformer.run import Run
from sciformer.training import checkpoint
from sciformer.training.weights import load_weights
from tests.errors import refuses
from tests.faults import fault
from tests.training import at_call
from tests.training.tiny import (
    assert_near,
    assert_same,
    at_step,
    fate,
    go,
    in_ranks,
    left,
    listening,
    start,
    start_ranks,
)


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


@fault("the file `latest` of the checkpoints lost, or naming a checkpoint that does not exist", "the same result")
@pytest.mark.parametrize("text", ["step-0000099\n", "", None])
def test_dangling_latest(tmp_path, texts, text):
    recipe, reference = texts
    go(recipe, tmp_path, stop_after=10)
    latest = tmp_path / "checkpoints" / "latest"
    latest.unlink() if text is None else latest.write_text(text)
    with listening() as said:
        go(recipe, tmp_path)
    assert any(line.endswith("from step 10") for line in said)
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


@fault(
    "all checkpoints of a run deleted, and the training started again",
    "refused, because it would replace the model; `--fresh` starts over",
)
def test_deleted_checkpoints(tmp_path, texts):
    recipe, reference = texts
    run = go(recipe, tmp_path, stop_after=10)
    before = read_weights(run)
    shutil.rmtree(tmp_path / "checkpoints")
    with refuses("step 10", file=tmp_path, hint="--fresh"):
        go(recipe.change({"train.learning_rate": 1e-4}), tmp_path)
    assert read_weights(Run(tmp_path)) == before
    assert_same(go(recipe, tmp_path, fresh=True), reference)


def read_weights(run):
    """Bytes of the best model of a run, verified."""
    return run.folder.files.read("model/weights.safetensors")


@fault("a log record, scores.json or an entry of statistics.json damaged", "refused with its name, or written again")
def test_damaged_records(tmp_path, texts):
    recipe, _ = texts
    run = go(recipe, tmp_path, report=True)
    for damaged in ('{"parts": {"val', '{"parts": {"valid": {"scores": {"loss": []}}}}', '{"parts": {"valid": 3}}'):
        (tmp_path / "scores.json").write_text(damaged)
        assert main(["train", str(tmp_path), "--quiet"]) == 0
        assert "loss" in json.loads((tmp_path / "scores.json").read_text())["parts"]["valid"]["scores"]
    state = json.loads((tmp_path / "model" / "statistics.json").read_text())
    for key in ("tokens", "objective"):
        files = {"model/statistics.json": json.dumps({name: one for name, one in state.items() if name != key})}
        run.folder.seal(files)
        with refuses(repr(key), error=Damaged):
            Run(tmp_path).assembly  # noqa: B018, it is read here
    run.folder.seal({"model/statistics.json": json.dumps({**state, "profile": {**state["profile"], "hashes": [-1]}})})
    with refuses("hashes.0", error=Damaged):
        Run(tmp_path).assembly  # noqa: B018
    run.folder.seal({"model/statistics.json": json.dumps(state)})
    for line in ('{"step": "3"}', '{"step": 3, "loss": {}}', '{"step": 3, "loss": [1]}', "[3]"):
        log = (tmp_path / "metrics.jsonl").read_text()
        (tmp_path / "metrics.jsonl").write_text(f"{log}{line}\n")
        with refuses(line[:9], file=tmp_path / "metrics.jsonl", line=len(log.splitlines()) + 1):
            go(recipe, tmp_path)
        (tmp_path / "metrics.jsonl").write_text(log)


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


@fault(
    "the disk full for the second of two ranks that write shards (FSDP2)",
    "both stop with the same message; the older checkpoint is intact; the same result",
)
def test_disk_full_for_a_shard(tmp_path, texts):
    recipe = texts[0].change({"train.shard": "full"})

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))

    with at_step(8, limit, rank=1):
        first, second = in_ranks(lambda: go(recipe, tmp_path / "run"), tmp_path, status=1)
    assert first == second
    assert first.startswith("UserError: ")
    assert "(step 4)" in first
    assert {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()} == {"latest", "step-0000004"}

    def work():
        go(recipe, tmp_path / "run")
        go(recipe, tmp_path / "whole")

    in_ranks(work, tmp_path)
    assert_same(tmp_path / "run", left(tmp_path / "whole"))


@fault("a shard of the last checkpoint (FSDP2) damaged or lost", "reported; the previous checkpoint is used")
@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"), os.unlink])
def test_damaged_shard(tmp_path, texts, damage):
    recipe = texts[0].change({"train.shard": "full", "model.dropout": 0.0})
    reference = left(go(recipe, tmp_path / "one"))
    in_ranks(lambda: go(recipe, tmp_path / "run", stop_after=8), tmp_path)
    (last,) = (tmp_path / "run" / "checkpoints").glob("step-0000008")
    assert len(list(last.glob("*-of-00002.safetensors"))) == 6
    damage(last / "optimizer-00002-of-00002.safetensors")
    with listening() as said:
        go(recipe, tmp_path / "run")
    assert [text for text in said if "optimizer-00002-of-00002.safetensors" in text]
    assert_near(tmp_path / "run", reference, 1e-6)


@fault("one of two ranks killed while it writes its shard", "the other ends; continues from the last save")
def test_killed_in_a_shard(tmp_path, texts):
    recipe = texts[0].change({"train.shard": "full", "model.dropout": 0.0})
    reference = left(go(recipe, tmp_path / "one"))

    def work():
        with contextlib.ExitStack() as patched:
            die = at_call(2, lambda: os.kill(os.getpid(), signal.SIGKILL))
            with at_step(8, lambda: patched.enter_context(die), rank=1):
                go(recipe, tmp_path / "run")

    children = start_ranks(work, tmp_path, SCIFORMER_PATIENCE="20")
    assert [fate(child) for child in children] == [1, -signal.SIGKILL]
    assert "rank 1 of the 2 processes" in (tmp_path / "rank-0").read_text()
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [4]
    assert_near(go(recipe, tmp_path / "run"), reference, 1e-6)
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))


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


@fault(
    "a changed byte in any file that decides an answer (recipe.yaml, run.json, statistics, calibration, weights)",
    "refused, with the name of the file",
)
@pytest.mark.parametrize("name", ["recipe.yaml", "run.json", "model/statistics.json", "manifest.json"])
def test_changed_file_of_a_run(tmp_path, texts, name):
    recipe, reference = texts
    go(recipe, tmp_path, stop_after=10)
    path = tmp_path / name
    text = path.read_text()
    path.write_text(text.replace('"', "'", 1) if name == "manifest.json" else text.replace("e", "i", 1))
    with refuses(path.name, file=path, hint="--fresh"):
        Run(tmp_path).predict([recipe.data.files[0]])
    if name in ("run.json", "manifest.json"):
        with refuses(path.name, file=path):
            go(recipe, tmp_path)
        assert_same(go(recipe, tmp_path, fresh=True), reference)


@fault(
    "recipe.yaml or statistics.json of a run changed or lost, and the training started again",
    "written again if that gives the hash in the manifest; the same result",
)
@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes().replace(b"e", b"i", 1)), os.unlink])
@pytest.mark.parametrize("name", ["recipe.yaml", "model/statistics.json"])
def test_repaired_text(tmp_path, texts, name, damage):
    recipe, reference = texts
    go(recipe, tmp_path, stop_after=10)
    path = tmp_path / name
    whole = path.read_bytes()
    damage(path)
    with refuses(path.name, error=Damaged):
        Run(tmp_path).step  # noqa: B018, it is read here
    with refuses(path.name if name == "recipe.yaml" else "train.seed"):
        go(recipe.change({"train.seed": 5}), tmp_path)
    with listening() as said:
        run = go(recipe, tmp_path)
    assert any(path.name in text and "again" in text for text in said)
    assert path.read_bytes() == whole
    assert_same(run, reference)


@fault("the best model damaged or lost, and a checkpoint of its step left", "rebuilt from it, bit for bit")
@pytest.mark.parametrize("stop_after", [5, None])
@pytest.mark.parametrize("damage", [cut, flip, os.unlink])
def test_damaged_best_model(tmp_path, texts, damage, stop_after):
    recipe, reference = texts
    recipe = recipe.change({"train.save_every": 5, "train.keep": 5})
    run = go(recipe, tmp_path, stop_after=stop_after)
    weights, about = load_weights(run.folder.model)
    path = tmp_path / "model" / "weights.safetensors"
    damage(path)
    with refuses("weights.safetensors", file=path, hint=f"sciformer train {tmp_path}"):
        _ = Run(tmp_path).model
    with listening() as said:
        again = go(recipe, tmp_path, stop_after=stop_after)
    assert any("weights.safetensors" in text and f"step {about['step']}" in text for text in said)
    found, kept = load_weights(again.folder.model)
    assert kept == about
    assert [name for name in weights if not weights[name].equal(found[name])] == []
    tensors, _ = left(go(recipe, tmp_path))
    expected = {name: tensor for name, tensor in reference[0].items() if name.startswith("model ")}
    assert [name for name, tensor in expected.items() if not tensors[name].equal(tensor)] == []


@fault(
    "the best model damaged, and no checkpoint of its step left",
    "refused, with the commands that train again or keep the last checkpoint instead",
)
def test_lost_best_model(tmp_path, texts):
    recipe, _ = texts
    run = go(recipe.change({"train.steps": 13, "train.evaluate_every": 5, "train.keep": 1}), tmp_path, stop_after=12)
    path = tmp_path / "model" / "weights.safetensors"
    assert run.folder.files.has("model/weights.safetensors")
    run.folder.seal({"model/calibration.json": "{}"})
    best = load_weights(run.folder.model)[1]["step"]
    shutil.rmtree(tmp_path / "checkpoints" / f"step-{best:07d}", ignore_errors=True)
    flip(path)
    with refuses(f"step {best}", file=path, hint=f"sciformer train {tmp_path} --accept-changes") as refused:
        go(run.recipe, tmp_path, stop_after=12)
    assert f"sciformer train {tmp_path} --fresh" in refused.value.hint
    with listening() as said:
        go(run.recipe, tmp_path, stop_after=12, accept_changes=True)
    assert any("step 12 instead of step" in text for text in said)
    assert load_weights(run.folder.model)[1]["step"] == 12
    assert not Run(tmp_path).calibration


@fault(
    "four processes started at the same instant in a new folder",
    "one trains, three are refused, and none deletes files of another",
)
def test_four_starts(tmp_path, texts):
    recipe, reference = texts
    for number in range(3):
        ready, go_on = os.pipe()

        def work(folder=tmp_path / f"run-{number}", gate=ready):
            os.read(gate, 1)
            go(recipe, folder)

        children = [start(work, tmp_path / f"answer-{number}-{one}") for one in range(4)]
        os.write(go_on, b"!!!!")
        fates = sorted(map(fate, children))
        answers = [(tmp_path / f"answer-{number}-{one}").read_text() for one in range(4)]
        assert fates == [0, 1, 1, 1], answers
        assert sum("in use" in text for text in answers) == 3, answers
        assert_same(tmp_path / f"run-{number}", reference)
        os.close(ready)
        os.close(go_on)


@fault(
    "four processes started at the same instant in a new folder, with data that are refused",
    "all are refused, and no file of a run is left",
)
def test_four_refused_starts(tmp_path, texts):
    recipe = texts[0].change({"data.files": [str(tmp_path / "nowhere.txt")]})
    children = [start(lambda: go(recipe, tmp_path / "run"), tmp_path / f"answer-{one}") for one in range(4)]
    assert [fate(child) for child in children] == [1] * 4
    for one in range(4):
        text = (tmp_path / f"answer-{one}").read_text()
        assert text.startswith("UserError"), text
        assert "nowhere.txt" in text or "in use" in text, text
    left_over = {path.name for path in tmp_path.glob("run/*")}  # nothing, but where one created what another removed
    assert left_over <= {".lock", "checkpoints"}
