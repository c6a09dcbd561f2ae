"""A run folder belongs to one process at a time, and its files are whole or not there."""

import errno
import json
import os
import resource
import shutil
import signal
import socket
import time

import pytest

from sciformer.cluster.scheduler import SCHEDULERS
from sciformer.errors import UserError
from sciformer.training import folder as module
from sciformer.training.folder import Folder
from tests.errors import refuses
from tests.training import at_call, in_child, names


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path / "run")
    folder.create()
    return folder


def started(work):
    """A forked child and a line from it: it does the work, with a function that sends the line, and then waits."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            work(lambda text: os.write(writing, f"{text}\n".encode()))
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading) as file:
        return child, file.readline().strip()


def hold(folder, then=lambda: None):
    def work(send):
        with folder.lock():
            send(then())
            time.sleep(20)

    return started(work)


def kill(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("damaged", [{"crossing": 1.5}, {"crossing": 1.5, "column": 3}, {"crossing": "a"}, [1]])
def test_scores_with_a_damaged_entry_are_none(folder, damaged):
    good = {"parts": {"test": {"scores": {"loss": 0.5}}}, "along": {"crossing": 1.5, "column": "x"}}
    folder.write("scores.json", json.dumps(good))
    assert folder.scores() == good
    folder.write("scores.json", json.dumps({**good, "along": damaged}))
    assert folder.scores() == {}


def test_the_files_of_a_run(tmp_path):
    folder = Folder(str(tmp_path / "a" / "b"))
    folder.create()
    folder.create()  # again is no matter
    assert names(folder.path) == ["checkpoints"]
    assert names(folder.checkpoints) == []
    paths = (folder.recipe, folder.log, folder.checkpoints, folder.model, folder.report)
    assert [path.name for path in paths] == ["recipe.yaml", "metrics.jsonl", "checkpoints", "model", "report.html"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for path, text in [("file", "Not a directory"), ("file/below", "Not a directory"), ("x" * 300, "name too long")]:
        with refuses(text, file=tmp_path / path, hint="--run"):
            Folder(tmp_path / path).create()
    deep = tmp_path / "/".join(["y" * 200] * 25)
    with refuses("name too long", hint="--run"):
        Folder(str(deep)[:4050].rstrip("/")).create()  # the folder itself would fit, a checkpoint would not

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", refuse)
        with refuses("Read-only file system", file=tmp_path / "run"):
            Folder(tmp_path / "run").create()
    if os.getuid():  # chmod does not bind root
        (tmp_path / "closed").mkdir(mode=0o500)
        with refuses("Permission denied", file=tmp_path / "closed" / "run"):
            Folder(tmp_path / "closed" / "run").create()


def test_a_new_folder_is_removed_by_its_owner_after_a_refusal_and_no_other_file(tmp_path):
    for name in ("", "old", "new"):
        folder = Folder(tmp_path / "run" / "below")
        if name == "old":
            folder.path.mkdir(parents=True)
        with refuses("no"), folder.claim():
            if name == "new":
                (folder.path / "notes").write_text("mine")
            raise UserError("no")
        assert folder.path.exists() == bool(name)
        if name == "new":
            assert (folder.path / "notes").read_text() == "mine"
        shutil.rmtree(folder.path, ignore_errors=True)
    with refuses("empty", key="--run"):
        Folder("")


def test_a_folder_that_its_owner_removes_is_created_again(tmp_path, monkeypatch):
    folder, locks = Folder(tmp_path / "run"), []
    take = module._take_lock

    def remove_first(descriptor):
        take(descriptor)
        locks.append(descriptor)
        if len(locks) < 3:  # the owner, whose training was refused, was faster
            shutil.rmtree(folder.path)

    monkeypatch.setattr(module, "_take_lock", remove_first)
    with folder.claim():
        assert len(locks) == 3
        assert names(folder.path) == [".lock", "checkpoints"]
        assert in_child(lambda: folder.lock().__enter__()) == 1


def test_a_second_process_is_told_who_is_at_work(folder):
    child, _ = hold(folder)
    owner = json.loads((folder.path / ".lock").read_text())
    assert (owner["pid"], owner["host"]) == (child, socket.gethostname())
    mentions = (child, socket.gethostname(), owner["since"], "--run")
    with refuses(*mentions, file=folder.path, hint=f"`kill {child}`"), folder.lock():
        pass
    kill(child)
    with folder.lock():
        assert json.loads((folder.path / ".lock").read_text())["pid"] == os.getpid()
    assert (folder.path / ".lock").read_text() == ""


@pytest.mark.parametrize(
    ("variable", "hint"), [("SLURM_JOB_ID", "`scancel 17`"), ("PBS_JOBID", "`qdel 17`"), ("OTHER", "`kill ")]
)
def test_the_job_of_a_process_is_named(folder, monkeypatch, variable, hint):
    for scheduler in SCHEDULERS.values():
        monkeypatch.delenv(scheduler.variable, raising=False)
    monkeypatch.setenv(variable, "17")
    child, _ = hold(folder)
    with refuses(child, file=folder.path, hint=hint), folder.lock():
        pass
    assert folder.owner().get("job") == (None if variable == "OTHER" else "17")
    kill(child)


def test_the_owner_is_found_without_touching_the_lock(folder, monkeypatch):
    assert folder.owner() is None
    child, _ = hold(folder)
    owner = folder.owner()
    assert (owner["pid"], owner["host"]) == (child, socket.gethostname())
    monkeypatch.setattr(
        module, "_is_locked", lambda _: os.open("/", os.O_WRONLY)
    )  # no locks: the process is looked for
    assert folder.owner() == owner
    kill(child)
    assert folder.owner() is None
    monkeypatch.undo()
    assert folder.owner() is None
    with folder.lock():
        assert folder.owner()["pid"] == os.getpid()
        assert in_child(lambda: folder.lock().__enter__()) == 1
    assert Folder(folder.path / "nowhere").owner() is None


def test_a_holder_that_has_not_signed_is_still_respected(folder):
    child, _ = hold(folder)
    for text in ("", "{", "[]", '{"pid": null}'):
        descriptor = os.open(folder.path / ".lock", os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, text.encode())
        os.close(descriptor)
        with refuses(file=folder.path, hint="--run") as refusal, folder.lock():
            pass
        assert "kill" not in refusal.value.hint
        assert folder.owner() == {}
    kill(child)


def test_the_same_process_is_refused_too_and_keeps_its_lock(folder):
    link = folder.path.with_name("link")
    link.symlink_to(folder.path)
    with folder.lock():
        for other in (folder, Folder(link)):
            with refuses(os.getpid(), file=other.path), other.lock():
                pass

        def attempt():
            with refuses(os.getppid(), file=folder.path), folder.lock():
                pass

        assert in_child(attempt) == 0  # the refusals have not lost it, nor does a child's
        assert in_child(attempt) == 0
    with pytest.raises(ZeroDivisionError), folder.lock():
        _ = 1 / 0
    with folder.lock():
        assert len(module.LOCKED_FOLDERS) == 1
    assert not module.LOCKED_FOLDERS


def test_a_forked_worker_that_outlives_its_killed_parent_does_not_keep_the_lock(folder):
    """With flock this fails: the worker shares the parent's open file."""

    def fork():
        worker = os.fork()
        if worker == 0:
            time.sleep(20)
            os._exit(0)
        return worker

    child, worker = hold(folder, fork)
    with refuses(child, file=folder.path), folder.lock():
        pass
    kill(child)
    os.kill(int(worker), 0)  # it lives
    with folder.lock():
        pass
    os.kill(int(worker), signal.SIGKILL)


def test_a_forked_child_that_leaves_the_block_gives_nothing_back(folder):
    context = folder.lock()
    context.__enter__()
    text = (folder.path / ".lock").stat().st_size
    assert in_child(lambda: context.__exit__(None, None, None)) == 0
    assert (folder.path / ".lock").stat().st_size == text > 0
    assert in_child(lambda: folder.lock().__enter__()) == 1
    context.__exit__(None, None, None)


def test_a_file_system_without_locks_is_reported(folder, monkeypatch):
    def refuse(_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module, "_take_lock", refuse)
    with pytest.warns(RuntimeWarning, match="has no locks"), folder.lock():
        pass
    with refuses("No such file", file=folder.path / "nowhere"), Folder(folder.path / "nowhere").lock():
        pass


def test_a_text_is_written_whole_or_not_at_all(folder):
    assert folder.write("model/card.md", "old ü\n").read_text() == "old ü\n"

    def work(fatal):
        with at_call(fatal, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            folder.write("model/card.md", "new")

    seen = []
    for fatal in range(1, 50):
        fate = in_child(lambda fatal=fatal: work(fatal))
        seen.append((folder.model / "card.md").read_text())
        if fate == 0:
            break
    assert fate == 0
    assert set(seen) == {"old ü\n", "new"}
    assert names(folder.model) == ["card.md"]
    with pytest.raises(AssertionError):
        folder.write("../escape", "")


def test_links_in_a_received_folder_are_not_written_through(folder, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder.path / ".run.json.partial").symlink_to(victim)
    assert folder.write("run.json", "{}").read_text() == "{}"
    assert not folder.report.is_symlink()
    folder.report.symlink_to(victim)
    assert folder.write("report.html", "page").read_text() == "page"
    folder.log.symlink_to(victim)
    with refuses(os.strerror(errno.ELOOP), file=folder.log, hint="--run"):
        folder.append({"step": 1})
    (folder.path / ".lock").symlink_to(victim)
    with refuses(os.strerror(errno.ELOOP), file=folder.path, hint="--run"), folder.lock():
        pass
    assert victim.read_text() == "mine"
    for name in ("model", "tensorboard", "checkpoints"):
        if (folder.path / name).exists():
            (folder.path / name).rmdir()
        (folder.path / name).symlink_to(tmp_path)
        with refuses(folder.path / name, file=folder.path, hint="--run"):
            folder.create()
        (folder.path / name).unlink()
    folder.create()


def test_a_full_disk_leaves_the_old_text_and_the_old_lines(folder):
    folder.write("recipe.yaml", "old")
    folder.append({"step": 1})

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with refuses("5,000 bytes", "File too large", file=folder.recipe):
            folder.write("recipe.yaml", "x" * 5000)
        with refuses("File too large", file=folder.log):
            folder.append({"step": 2, "text": "x" * 5000})

    assert in_child(work) == 0
    assert folder.recipe.read_text() == "old"
    assert folder.records() == [{"step": 1}]
    folder.append({"step": 3})
    assert folder.records() == [{"step": 1}, {"step": 3}]
    assert names(folder.path) == ["checkpoints", "metrics.jsonl", "recipe.yaml"]


def test_a_log_torn_anywhere_is_read_and_continued(folder):
    assert folder.records() == []
    folder.rewind(0)
    records = [{"step": step, "loss": 0.1 * step, "bounds": ["ü\n"]} for step in range(3)]
    for record in records:
        folder.append(record)
    whole = folder.log.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        folder.log.write_bytes(whole[:length])
        complete = records[: sum(end <= length for end in ends)]
        assert folder.records() == complete
        folder.append({"step": 9})
        assert folder.records() == [*complete, {"step": 9}]
    with pytest.raises(AssertionError, match="plain"):
        folder.append({"loss": (1, 2)})


def test_a_broken_line_in_the_middle_is_named(folder):
    for line in (b"{]\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n"):
        folder.log.write_bytes(b'{"step": 1}\n' + line + b'{"step": 2}\n')
        with refuses(repr(line[:60]), file=folder.log, line=2):
            folder.records()


def test_a_rewound_log_continues_like_one_that_was_never_interrupted(folder):
    def record(step):
        return {"step": step, "loss": float("inf") if step == 2 else 1 / 3, "samples": [step]}

    folder.append({"start": True})
    for step in range(6):
        folder.append(record(step))
    whole = folder.log.read_bytes()
    for step in range(-1, 6):
        folder.log.write_bytes(whole + b'{"step": 6, "lo')
        folder.rewind(step)
        assert [found.get("step") for found in folder.records()] == [None, *range(step + 1)]
        for later in range(step + 1, 6):
            folder.append(record(later))
        assert folder.log.read_bytes() == whole
    assert names(folder.path) == ["checkpoints", "metrics.jsonl"]


def test_nothing_is_written_to_another_folder_in_its_place(folder):
    away = folder.path.with_name("away")
    with folder.lock():
        folder.append({"step": 1})
        folder.path.rename(away)
        works = {
            "append": lambda: folder.append({"step": 2}),
            "secure": folder.secure,
            "write": lambda: folder.note_stop(1, error="lost"),
            "seal": lambda: folder.seal({"run.json": "{}"}),
        }
        for there in (False, True):
            if there:
                folder.path.mkdir()
            for work in works.values():
                with refuses(file=folder.path):
                    work()
            assert not there or names(folder.path) == []
        folder.path.rmdir()
        away.rename(folder.path)
        folder.append({"step": 2})
    assert [record["step"] for record in folder.records()] == [1, 2]
