"""Every file of a run that decides an answer is sealed: a changed byte is refused, a kill leaves a valid run."""

import json
import os
import random
import signal
import time

import numpy as np
import pytest

from sciformer.errors import UserError
from sciformer.files import seal
from sciformer.files.seal import Damaged, SealedFolder
from sciformer.run import Run
from sciformer.training.folder import RUN_FILES
from tests.errors import refuses
from tests.training import at_call, in_child
from tests.training.tiny import go, image_recipe, start

FILES = ["recipe.yaml", "run.json", "model/statistics.json", "model/calibration.json", "model/weights.safetensors"]
STREAMED = 5_000  # a limit of the memory below the size of the weights
TABLE = {"image": np.random.default_rng(1).normal(size=(3, 4, 4)).astype(np.float32)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A calibrated run."""
    folder = tmp_path_factory.mktemp("images")
    made = go(image_recipe(folder, train__steps=5), folder / "run")
    made.folder.seal({"model/calibration.json": json.dumps({"state": {"temperature": 1.5}})})
    return made.path


def answer(path):
    return Run(path).predict(TABLE)["probabilities"].tolist()


def test_the_manifest_names_all_that_decides_an_answer(run):
    assert sorted(json.loads((run / "manifest.json").read_text())["files"]) == sorted(FILES)
    assert {*FILES, "manifest.json"} < {*RUN_FILES}
    assert json.loads((run / "run.json").read_text())["sealed"] is True


@pytest.mark.parametrize(
    ("name", "limit"), [*((name, seal.MAX_BYTES_IN_MEMORY) for name in FILES), ("model/weights.safetensors", STREAMED)]
)
def test_a_flipped_bit_is_refused_with_the_name_of_the_file(run, monkeypatch, name, limit):
    monkeypatch.setattr(seal, "MAX_BYTES_IN_MEMORY", limit)
    path, dice = run / name, random.Random(name)
    whole, before = path.read_bytes(), answer(run)
    assert limit > STREAMED or len(whole) > limit
    try:
        for _ in range(15):
            data = bytearray(whole)
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            path.write_bytes(data)
            with refuses(path.name, file=path, error=Damaged):
                answer(run)
        for data in (whole[:-1], whole + b"\n", b""):
            path.write_bytes(data)
            with refuses(path.name, "bytes too", file=path, error=Damaged):
                answer(run)
        path.unlink()
        with refuses(run):
            answer(run)
    finally:
        path.write_bytes(whole)
    assert answer(run) == before


def test_a_flipped_bit_of_the_manifest_changes_no_answer(run):
    path, dice, refused = run / "manifest.json", random.Random(0), 0
    whole, expected = path.read_bytes(), answer(run)
    try:
        for _ in range(40):
            data = bytearray(whole)
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            path.write_bytes(data)
            try:
                found = answer(run)
            except UserError as error:
                found, refused = error.file, refused + 1
            assert found in (expected, str(path))  # a space between two words of JSON may be another one
        assert refused > 25
        path.unlink()
        with refuses("manifest.json is missing", file=path):
            Run(run)
    finally:
        path.write_bytes(whole)


def test_a_file_that_no_training_wrote_is_refused(run):
    path = run / "model" / "calibration.json"
    text = path.read_text()
    Run(run).folder.seal({"model/calibration.json": None})
    assert not Run(run).calibration
    path.write_text('{"state": {"temperature": 9.0}}')
    with refuses("calibration.json", "manifest.json", file=path):
        answer(run)
    Run(run).folder.seal({"model/calibration.json": text})
    assert Run(run).calibration == json.loads(text)


def test_a_run_without_a_manifest_is_read_with_a_note_and_sealed_by_the_next_writer(tmp_path):
    recipe = image_recipe(tmp_path, train__steps=5)
    path = go(recipe, tmp_path / "run").path
    expected, about = answer(path), json.loads((path / "run.json").read_text())
    (path / "manifest.json").unlink()
    with refuses("manifest.json is missing"):  # run.json says that there was one
        Run(path)
    del about["sealed"]
    (path / "run.json").write_text(json.dumps(about))
    weights = path / "model" / "weights.safetensors"
    with pytest.warns(UserWarning, match="before runs had a manifest"):
        old = Run(path)
    with refuses("weights.safetensors", file=weights):  # of this version, whose manifest is lost
        _ = old.model
    old.folder.seal({"model/calibration.json": None})
    assert answer(path) == expected
    assert sorted(json.loads((path / "manifest.json").read_text())["files"]) == sorted({*FILES} - {FILES[3]})
    go(recipe, path)
    assert json.loads((path / "run.json").read_text())["sealed"] is True


def sealed(path):
    return SealedFolder(path, ("a.json", "below/b"), witness="a.json")


def test_a_kill_at_any_instant_leaves_old_or_new_files(tmp_path):
    files = sealed(tmp_path / "folder")

    def work(fatal):
        with at_call(fatal, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            files.write({"a.json": b"new", "below/b": b"newer", "gone": None})

    seen = set()
    for fatal in range(1, 100):
        files.write({"a.json": b"old", "below/b": b"older", "gone": b"here"})
        result = in_child(lambda fatal=fatal: work(fatal))
        gone = files.read("gone") if files.has("gone") else None
        seen.add((files.read("a.json"), files.read("below/b"), gone))
        if result == 0:
            break
    assert result == 0
    assert seen == {
        *((b"old", b"older", b"here"), (b"new", b"older", b"here")),
        *((b"new", b"newer", b"here"), (b"new", b"newer", None)),
    }
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["a.json", "below", "manifest.json"]


def test_a_reader_beside_a_writer_sees_whole_files(tmp_path):
    files = sealed(tmp_path)
    files.write({"a.json": b"0", "below/b": b"0" * 5000})

    def work():
        until = time.monotonic() + 1.5
        for number in range(10**6):
            files.write({"a.json": str(number).encode(), "below/b": str(number % 10).encode() * 5000})
            if time.monotonic() > until:
                break

    child, seen = start(work), set()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        seen.add(int(files.read("a.json")))
        assert len(set(files.read("below/b"))) == 1
    assert len(seen) > 5


def test_a_manifest_of_a_newer_library_or_none_at_all(tmp_path):
    files = sealed(tmp_path)
    assert not files.sealed
    assert not files.has("a.json")
    with refuses("a.json is missing", file=tmp_path / "a.json"):
        files.read("a.json")
    (tmp_path / "a.json").write_text('{"sealed": false}')
    assert files.read("a.json") == b'{"sealed": false}'
    files.write({"new": b"1"})
    assert files.sealed
    (tmp_path / "a.json").write_text("{}")
    with refuses("a.json", file=tmp_path / "a.json"):  # which the first manifest adopted
        files.read("a.json")
    (tmp_path / "manifest.json").write_text('{"format": 2}')
    with refuses("format 2", file=tmp_path / "manifest.json", hint="update"):
        files.read("a.json")
    os.unlink(tmp_path / "manifest.json")
    os.mkfifo(tmp_path / "manifest.json")
    with refuses("manifest.json", file=tmp_path / "manifest.json"):
        files.read("a.json")


def test_links_to_the_contents_are_followed(tmp_path):
    files = sealed(tmp_path / "run")
    files.write({"a.json": b"{}"})
    (tmp_path / "run" / "a.json").rename(tmp_path / "stored")
    (tmp_path / "run" / "a.json").symlink_to(tmp_path / "stored")  # as git-annex and DVC keep large files
    assert files.read("a.json") == b"{}"
    (tmp_path / "stored").write_bytes(b"[]")
    with refuses("a.json is damaged"):
        files.read("a.json")
