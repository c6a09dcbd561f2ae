"""A checkpoint is whole or not there, whatever is cut, flipped, lost, smuggled in or killed on the way."""

import contextlib
import errno
import json
import math
import os
import random
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch

from sciformer.errors import UserError
from sciformer.files import seal
from sciformer.training.checkpoint import load, save, steps
from tests.errors import refuses
from tests.training import at_call, contents, get, in_child, names, put


@pytest.mark.parametrize("whole", [seal.MAX_BYTES_IN_MEMORY, 300], ids=["whole", "streamed"])
def test_every_tensor_comes_back_bit_for_bit(tmp_path, monkeypatch, whole):
    monkeypatch.setattr(seal, "MAX_BYTES_IN_MEMORY", whole)
    tied = torch.randn(40, 40)
    weights = {"tied.in": torch.nn.Parameter(tied), "tied.out": tied, "view": tied[3:5], "transposed": tied.T}
    weights |= {"strided": tied[::2, ::3], "expanded": torch.randn(1, 3).expand(4, 3)}
    weights["channels_last"] = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    weights["conjugate"] = torch.randn(3, dtype=torch.complex64).conj()
    optimizer = {"scalar": torch.tensor(float("nan")), "empty": torch.zeros(0, 3), "half": torch.randn(7).bfloat16()}
    optimizer |= {"large": torch.tensor([2**63 - 1, -(2**63)]), "flags": torch.tensor([True, False])}
    optimizer |= {"bytes": torch.get_rng_state(), "odd": torch.tensor([-0.0, float("inf"), 5e-324]).double()}
    tensors = {"weights": weights, "optimizer": optimizer, "average": {}}
    path = save(tmp_path, 40, tensors, {})
    found = load(tmp_path, log=pytest.fail)
    assert (found.step, found.path, path.name) == (40, path, "step-0000040")
    assert list(found.tensors) == ["weights", "optimizer", "average"]
    for stem, named in tensors.items():
        assert set(found.tensors[stem]) == set(named)
        for name, tensor in named.items():
            there, tensor = found.tensors[stem][name], tensor.detach().resolve_conj().contiguous()
            assert (there.dtype, there.shape) == (tensor.dtype, tensor.shape), name
            assert there.reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8)), name
    assert len({file.stat().st_mode for file in path.iterdir()}) == 1  # readable for whoever may read the rest


def test_the_state_comes_back_exactly_and_must_be_plain(tmp_path):
    state = {"a": [0.1, 1e-310, -0.0, math.inf, 2**70, None, True], "b": {"ü\ud800": "x\n"}}
    save(tmp_path, 1, {}, state | {"nan": math.nan})
    found = load(tmp_path, log=pytest.fail).state
    assert repr(found) == repr(state | {"nan": math.nan})
    for odd in ((1, 2), {1: 2}, torch.zeros(()), {3}, b"x"):
        with pytest.raises(AssertionError, match=r"state\.deep"):
            save(tmp_path, 2, {}, {"deep": [odd]})
    assert steps(tmp_path) == [1]


def test_nothing_yet_is_none_and_a_file_is_a_mistake(tmp_path):
    assert load(tmp_path / "nowhere", log=pytest.fail) is None
    assert load(tmp_path, log=pytest.fail) is None
    (tmp_path / "file").write_text("")
    with refuses(os.strerror(errno.ENOTDIR), file=tmp_path / "file"):
        load(tmp_path / "file", log=pytest.fail)
    with refuses(file=tmp_path / "file" / "below" / "step-0000001"):
        put(tmp_path / "file" / "below", 1)


def test_pruning_keeps_the_newest(tmp_path):
    put(tmp_path, 10, 20, 30, 40, 50, keep=2)
    assert steps(tmp_path) == [40, 50]
    assert (tmp_path / "latest").read_text() == "step-0000050\n"
    put(tmp_path, 45, keep=2)  # resumed before step 50: what is later goes, what was just written stays
    assert steps(tmp_path) == [40, 45]
    put(tmp_path, 46, 46, keep=1)
    assert names(tmp_path) == ["latest", "step-0000046"]


def test_a_step_can_be_asked_for(tmp_path):
    put(tmp_path, 1, 2, 3, keep=3)
    assert get(tmp_path, step=2)[0].step == 2
    (tmp_path / "step-0000002" / "state.json").unlink()
    for step, mentions in ((9, [9, "1, 2, 3"]), (2, ["step-0000002", "state.json"])):
        with refuses(*mentions, file=tmp_path):
            load(tmp_path, log=lambda _: None, step=step)


def test_a_file_cut_at_any_length_is_found_and_the_one_before_is_used(tmp_path):
    put(tmp_path, 1, 2)
    for path in sorted((tmp_path / "step-0000002").iterdir()):
        whole = path.read_bytes()
        for length in {*range(0, len(whole), max(1, len(whole) // 12)), len(whole) - 1}:
            path.write_bytes(whole[:length])
            found, said = get(tmp_path)
            if path.name == "manifest.json":
                assert found.step == 1 or whole[length:] == b"\n"
            else:
                assert found.step == 1
                assert f"{path.name} is {len(whole) - length:,} bytes too short" in said[0]
            assert len(said) == 2 - found.step
        path.write_bytes(whole + b"x")
        assert get(tmp_path)[0].step == 1
        path.write_bytes(whole)
    assert get(tmp_path)[1] == []


def test_a_flipped_bit_anywhere_is_found_and_the_one_before_is_used(tmp_path):
    put(tmp_path, 1, 2)
    rng = random.Random(0)
    for path in sorted((tmp_path / "step-0000002").iterdir()):
        whole = path.read_bytes()
        for position in sorted(rng.sample(range(len(whole)), min(40, len(whole)))):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << rng.randrange(8)
            path.write_bytes(flipped)
            blank = path.name == "manifest.json" and whole[position : position + 1].isspace()
            claims = path.name == "manifest.json" and b'"format"' in whole[position - 11 : position + 2]
            with contextlib.suppress(*[UserError] if claims else []):  # says that a newer Sciformer wrote it
                found, said = get(tmp_path)
                assert found.step == 1 or blank, (path.name, position)
                assert len(said) == 2 - found.step
        path.write_bytes(whole)


def test_what_is_wrong_is_said(tmp_path):
    put(tmp_path, 1, 2)
    spare, broken = tmp_path / "spare", tmp_path / "step-0000002"
    shutil.copytree(broken, spare)
    evil = {"bytes": 0, "sha256": ""}

    def manifest(**changes):
        old = json.loads((spare / "manifest.json").read_text())
        return lambda: (broken / "manifest.json").write_text(json.dumps(old | changes))

    def link(name, target):
        (broken / name).unlink()
        (broken / name).symlink_to(target)

    def pipe():
        (broken / "state.json").unlink()
        os.mkfifo(broken / "state.json")

    def junk():
        (broken / "weights.safetensors").write_bytes(b"junk with the right hash")
        names = ("state.json", "weights.safetensors")
        manifest(files={name: seal.seal_file(broken / name) for name in names})()

    faults = {
        "weights.safetensors is not a safetensors file": junk,
        "weights.safetensors is missing": lambda: (broken / "weights.safetensors").unlink(),
        "manifest.json is missing": lambda: (broken / "manifest.json").unlink(),
        "not valid JSON": lambda: (broken / "manifest.json").write_text("[" * 100_000),
        "contain a JSON object": lambda: (broken / "manifest.json").write_text("[]"),
        "manifest of this step": manifest(step=3),
        "no size and hash of state.json": manifest(files={"state.json": {}}),
        "names '../../x.safetensors'": manifest(files={"state.json": evil, "../../x.safetensors": evil}),
        "names 'x.pkl'": manifest(files={"state.json": evil, "x.pkl": evil}),
        "weights.safetensors is a link": lambda: link("weights.safetensors", spare / "weights.safetensors"),
        "manifest.json is a link": lambda: link("manifest.json", spare / "manifest.json"),
        "state.json is not a regular file": pipe,
        "it is a link or a file": lambda: (shutil.rmtree(broken), broken.symlink_to(spare)),
    }
    for text, damage in faults.items():
        damage()
        found, said = get(tmp_path)
        assert found.step == 1
        assert [text in sentence and "step-0000002 cannot be used" in sentence for sentence in said] == [True]
        broken.unlink() if broken.is_symlink() else shutil.rmtree(broken)
        shutil.copytree(spare, broken)
    manifest(format=3)()
    with refuses("format 3", file=broken):
        load(tmp_path, log=pytest.fail)
    shutil.rmtree(tmp_path / "step-0000001")
    (broken / "manifest.json").unlink()
    with refuses("step-0000002", "manifest.json", file=tmp_path):
        load(tmp_path, log=lambda _: None)


def test_latest_is_a_hint_and_smuggled_files_are_never_opened(tmp_path):
    put(tmp_path, 1)
    (tmp_path / "latest").write_text("step-0000099\n")
    assert get(tmp_path)[1] == []
    (tmp_path / "latest").unlink()
    (tmp_path / "step-0000001" / "weights.pt").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    (tmp_path / "step-0000001" / "x\x1b.pkl").mkdir()
    (text,) = get(tmp_path)[1]
    assert "step-0000001" in text
    assert "'weights.pt', 'x\\x1b.pkl'" in text


@pytest.mark.parametrize("again", [False, True], ids=["the next step", "the same step"])
def test_a_kill_at_any_call_leaves_the_old_or_the_new(tmp_path, again):
    put(tmp_path / "good", 1, 2)
    folder, seen = tmp_path / "run", set()
    tensors, state = contents(2 if again else 3)
    state |= {"again": True} if again else {}

    def work(fatal):
        with at_call(fatal, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            save(folder, state["step"], tensors, state)

    for fatal in range(1, 1000):
        shutil.copytree(tmp_path / "good", folder)
        fate = in_child(lambda fatal=fatal: work(fatal))
        assert fate in (0, -signal.SIGKILL)
        found = load(folder, log=pytest.fail)
        seen.add(len(found.state) + found.step)
        assert found.state in (contents(2)[1], state)
        assert torch.equal(found.tensors["weights"]["a"], contents(found.step)[0]["weights"]["a"])
        put(folder, 4)
        assert names(folder) == ["latest", found.path.name.removeprefix(".replaced-"), "step-0000004"]
        shutil.rmtree(folder)
        if fate == 0:
            break
    assert fatal in range(20, 900)
    assert seen == {4, 5}  # the old one after early kills, the new one after late ones


@pytest.mark.filterwarnings("ignore:.*could not be removed")
@pytest.mark.parametrize("number", [2, 3], ids=["the same step", "the next step"])
def test_an_error_at_any_call_leaves_the_old_or_the_new_and_no_rubbish(tmp_path, number):
    put(tmp_path / "good", 1, 2)
    folder, errors = tmp_path / "run", []

    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    for fatal in range(1, 1000):
        shutil.copytree(tmp_path / "good", folder)
        with at_call(fatal, full) as calls:
            try:
                put(folder, number)
            except UserError as error:
                errors.append(error)
        assert get(folder)[1] == []
        put(folder, 4)
        assert not [name for name in names(folder) if name.startswith(".")]
        shutil.rmtree(folder)
        if len(calls) < fatal:
            break
    assert len(errors) > 15
    text = r"No space left.*\b1,\d{3},\d{3} bytes .* [\d,]+ bytes "
    assert [error for error in errors if not re.search(text, error.message)] == []
    assert {Path(error.file).name for error in errors} == {f"step-{number:07d}"}
    assert all("step 2" in error.hint for error in errors)


def test_everything_is_on_the_disk_before_it_counts(tmp_path, monkeypatch):
    """What a loss of power would leave: a rename must not come before the contents, nor a removal before the rename."""
    put(tmp_path, 1)
    synced, calls, fsync, rename = set(), [], os.fsync, os.rename

    def renamed(source, target):
        calls.append(os.path.basename(target))
        if len(calls) == 1:
            assert {path.stat().st_ino for path in (source, *source.iterdir())} <= synced
        else:
            assert (tmp_path / "latest").read_text() == "step-0000002\n"
            assert tmp_path.stat().st_ino in synced
        synced.discard(tmp_path.stat().st_ino)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", lambda number: (synced.add(os.fstat(number).st_ino), fsync(number)))
    monkeypatch.setattr(os, "rename", renamed)
    put(tmp_path, 2, keep=1)
    assert calls == ["step-0000002", f".partial-step-0000001-{os.getpid()}"]


def test_too_little_room_is_found_before_writing(tmp_path, monkeypatch):
    put(tmp_path, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 4, 6))
    with refuses("6 bytes", file=tmp_path / "step-0000002") as refused:
        put(tmp_path, 2)
    assert re.search(r"\b1,\d{3},\d{3} bytes", refused.value.message)
    assert get(tmp_path)[0].step == 1


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    put(tmp_path, 1)
    with at_call(12, lambda: signal.raise_signal(signal.SIGINT)) as calls, pytest.raises(KeyboardInterrupt):
        put(tmp_path, 2)
    assert calls[3][0] == "mkdir"  # of the partial folder
    assert names(tmp_path) == ["latest", "step-0000001"]


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path):
    dead, living = f".partial-step-0000001-{2**22 + 1}", f".partial-step-0000001-{os.getppid()}"
    for name in (dead, living, f".partial-step-0000009-{os.getpid()}", f".partial-step-0000001-{10**30}"):
        (tmp_path / name).mkdir(parents=True)
    put(tmp_path, 1)
    assert names(tmp_path) == [living, "latest", "step-0000001"]
