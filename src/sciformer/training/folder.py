"""Folder of a run: paths, lock, log, and files with recorded hashes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import struct
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ..cluster.scheduler import SCHEDULERS, describe_process, present_job
from ..errors import UserError
from ..files.atomic import replace, sync
from ..files.seal import MANIFEST, Stored, Unsound, parse_object, run_files

# The lock is a POSIX record lock (lockf). A lock by flock would belong to the open file, and a forked process shares
# open files: a data worker that outlives its killed parent would keep the run locked. A record lock belongs only to the
# process, and the kernel drops it with the process. But it is also dropped when the process closes *any* descriptor of
# the file. So only `lock` opens `.lock`, and it checks LOCKED_FOLDERS first. Windows has no fcntl: there a byte far
# behind the text is locked, and child processes do not inherit this lock (written from the manual, not tested).
if sys.platform == "win32":
    import msvcrt

    def _take_lock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _is_locked(descriptor: int) -> bool:
        raise OSError(errno.ENOSYS, "Windows cannot ask for a lock")
else:
    import fcntl

    def _take_lock(descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _is_locked(descriptor: int) -> bool:
        """Whether another process holds the lock, tested without taking it."""
        start = (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # type, whence, start, length, process of `struct flock`
        if sys.platform == "darwin":
            layout, place, start = "@qqihh", 3, (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        else:
            layout, place = "@hhqqi4x", 0
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *start))
        return bool(struct.unpack(layout, answer)[place] != fcntl.F_UNLCK)


NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # a run folder may come from another person: never write through its links
LOCKED_FOLDERS: set[tuple[int, int, int]] = set()  # (process, device, inode) of the folders locked by this process
LOGGED_LISTS = ("samples", "bounds")
CLAIM_ATTEMPTS = 50  # attempts to create a folder, if another process removes it again
# Files of a training; `--fresh` removes them. The last two files show that the folder is a run.
RUN_FILES = (
    "recipe.yaml",
    "metrics.jsonl",
    "report.html",
    "scores.json",
    "stopped.json",
    "checkpoints/latest",
    "checkpoints/step-*",
    "checkpoints/.replaced-step-*",
    "checkpoints/.partial-step-*",
    "model/weights.safetensors",
    "model/statistics.json",
    "model/calibration.json",
    "tensorboard/events.out.tfevents.*",
    MANIFEST,
    "run.json",
)


def remove(path: Path) -> None:
    """Remove a file or folder; warn if this fails."""
    if path.is_symlink() or path.is_file():
        with suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        warnings.warn(f"{path} is no longer needed but could not be removed", RuntimeWarning, stacklevel=4)


def is_alive(pid: int) -> bool:
    """Whether another process with this id runs on this host."""
    if pid == os.getpid():
        return False
    if sys.platform == "win32":
        return True  # on Windows, os.kill would end the process
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def assert_plain(value: Any, where: str) -> None:
    """Assert that JSON keeps a value unchanged; a tuple, for example, becomes a list."""
    if type(value) is dict:
        for key, item in value.items():
            assert type(key) is str, f"{where} has the key {key!r}, which is not text"
            assert_plain(item, f"{where}.{key}")
    elif type(value) is list:
        for index, item in enumerate(value):
            assert_plain(item, f"{where}[{index}]")
    else:
        assert value is None or type(value) in (str, bool, int, float), f"{where} is not plain JSON: {type(value)}"


def are_scores(value: dict[str, Any]) -> bool:
    """Whether the used entries of scores.json have valid types."""
    parts, along = value.get("parts", {}), value.get("along") or {}
    if type(parts) is not dict or type(along) is not dict:
        return False
    if along.get("crossing") is not None and type(along.get("column")) is not str:
        return False
    numbers = [along.get(name) for name in ("crossing", "error", "reference")]
    for part in parts.values():
        if type(part) is not dict or type(part.get("scores", {})) is not dict:
            return False
        if not all(type(part.get(name, [])) is list for name in ("bounds", "too_few")):
            return False
        numbers += part.get("scores", {}).values()
    return all(item is None or type(item) in (int, float) for item in numbers)


def is_record(value: Any) -> bool:
    """Whether a value is a record of the log.

    A record has a step, a time, numbers by name, and the lists named in `LOGGED_LISTS`.
    """
    plain = type(value) is dict and type(value.get("step", 0)) is int
    return plain and all(
        type(item) in (int, float, bool)
        or (type(item) is list and name in LOGGED_LISTS)
        or (type(item) is str and name == "time")
        for name, item in value.items()
    )


class Folder:
    """Paths of a run folder.

    recipe        `recipe.yaml`, the recipe with all values
    log           `metrics.jsonl`, one JSON record per line
    checkpoints   folder of the checkpoints
    model         folder of the best model
    report        `report.html`
    files         the files that determine predictions; `manifest.json` has their hashes
    signature     contents of the lock file, if this process has locked the folder; else empty
    """

    signature = ""
    _inode = 0  # of the locked folder

    def __init__(self, path: str | Path) -> None:
        if not str(path).strip():
            raise UserError("the name of the run folder is empty", hint="Name a folder with --run.", key="--run")
        self.path = Path(path).expanduser()
        with _as_user_error(f"{str(path)[:80]} cannot be a run folder", self.path):
            (self.path / "recipe.yaml").exists()  # an error if the path is too long
        self.recipe, self.log = self.path / "recipe.yaml", self.path / "metrics.jsonl"
        self.checkpoints, self.model = self.path / "checkpoints", self.path / "model"
        self.report, self.files = self.path / "report.html", run_files(self.path)

    def __repr__(self) -> str:
        return f"Folder({str(self.path)!r})"

    @property
    def is_run(self) -> bool:
        """Whether the folder belongs to a run, according to its manifest or its run.json."""
        return "files" in self.peek(MANIFEST) or "sciformer" in self.peek("run.json")

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Context manager: create and lock the folder.

        A folder that is not from a run is refused if it has files that a training would replace. After a UserError, a
        newly created folder is removed again if no training began in it.
        """
        for attempt in range(CLAIM_ATTEMPTS):
            self._check_own()
            new = not self.path.exists()
            with ExitStack() as held:
                try:
                    self.create()
                    held.enter_context(self.lock())
                except UserError as error:
                    # Another process, whose training was refused, has just removed the folder.
                    if isinstance(error.__cause__, FileNotFoundError) and attempt < CLAIM_ATTEMPTS - 1:
                        time.sleep(0.01)
                        continue
                    raise
                try:
                    yield
                except UserError:
                    if new:
                        self._remove_unused()
                    raise
                return

    def _check_own(self) -> None:
        """Refuse a folder with files of another origin, if a training would replace them."""
        there = sorted(path for name in RUN_FILES for path in self.path.glob(name))
        if there and not self.is_run:
            name = there[0].relative_to(self.path)
            message = f"{self.path} cannot be a run folder: it contains {name}, which is not from a run"
            raise UserError(message, hint="Use another --run.", file=self.path)

    def _remove_unused(self) -> None:
        """Remove the locked folder if it has only the files of `create` and `lock`."""
        if {path.name for path in self.path.iterdir()} <= {".lock", self.checkpoints.name}:
            with suppress(OSError):  # not empty: another process has just created its part again
                self.checkpoints.rmdir()
                (self.path / ".lock").unlink()
                self.path.rmdir()

    def clear(self) -> None:
        """Remove only the files of a training; the caller must hold the lock."""
        for path in [path for name in RUN_FILES for path in self.path.glob(name)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def create(self) -> None:
        """Create the folder, and test that checkpoints can be written to it."""
        # As long as the longest file name of a checkpoint, to detect a path that is too long.
        probe = self.checkpoints / f".probe-{os.getpid()}".ljust(80, "-")
        with _as_user_error(f"the run folder {self.path} cannot be written to", self.path):
            for folder in (self.checkpoints, self.model, self.path / "tensorboard"):
                if folder.is_symlink():
                    raise OSError(errno.ELOOP, "a link to another place", str(folder))
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            try:
                probe.unlink(missing_ok=True)
                probe.write_text("probe")
            finally:
                probe.unlink(missing_ok=True)
            sync(self.path)
            if os.access(self.path.parent, os.R_OK):  # a shared parent folder may not be readable
                sync(self.path.parent)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process, until the context or the process ends."""
        with _as_user_error(f"the run folder {self.path} cannot be locked", self.path):
            inode = os.stat(self.path)
            me = (os.getpid(), inode.st_dev, inode.st_ino)
            if me in LOCKED_FOLDERS:
                message = f"the run folder {self.path} is in use: this process ({me[0]}) has already locked it"
                raise UserError(message, file=self.path)
            descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o644)
        try:
            self._sign(descriptor)
            self._inode = inode.st_ino
            with _as_user_error(f"the run folder {self.path} cannot be locked", self.path):
                if not os.path.samestat(os.fstat(descriptor), os.stat(self.path / ".lock")):
                    raise FileNotFoundError(errno.ENOENT, "removed by another process", str(self.path))
            LOCKED_FOLDERS.add(me)
            try:
                yield
            finally:
                LOCKED_FOLDERS.discard(me)
                self.signature = ""
                if os.getpid() == me[0]:  # a forked child has no lock to release
                    os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def _sign(self, descriptor: int) -> None:
        """Take the lock; write process, host and time into the lock file."""
        try:
            _take_lock(descriptor)
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
                text = f"the file system of {self.path} has no locks ({error.strerror}): use only one process there"
                warnings.warn(text, RuntimeWarning, stacklevel=5)
            elif error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                os.lseek(descriptor, 0, os.SEEK_SET)
                raise self._in_use_error(os.read(descriptor, 4096)) from error
            else:
                raise _folder_error(f"the run folder {self.path} cannot be locked", self.path, error) from error
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since, **present_job()})
        with _as_user_error(f"the run folder {self.path} cannot be locked", self.path):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, text.encode())
            os.fsync(descriptor)  # for ranks on other machines
        self.signature = text

    def owner(self) -> dict[str, Any] | None:
        """Process with the lock of the folder, or None.

        The keys are `pid`, `host`, `since` and the job, if known.
        """
        path = self.path / ".lock"
        try:
            inode = os.stat(self.path)
            if (os.getpid(), inode.st_dev, inode.st_ino) in LOCKED_FOLDERS:  # closing the file would unlock it
                return {"pid": os.getpid(), "host": socket.gethostname()}
            with open(path, "rb") as file:
                signed = _parse_signature(file.read(4096))
                try:
                    return signed if _is_locked(file.fileno()) else None
                except OSError:  # the file system has no locks
                    gone = signed.get("host") == socket.gethostname() and not is_alive(signed["pid"])
                    return None if gone or not signed else signed
        except OSError:
            return None

    def is_locked_with(self, signature: str, seconds: float) -> bool:
        """Whether the lock file has this signature, after waiting up to `seconds`.

        On a network file system, a new file from another machine may appear late.
        """
        end = time.monotonic() + seconds
        while True:
            with suppress(OSError):
                if (self.path / ".lock").read_text("utf-8") == signature:
                    return True
            if time.monotonic() >= end:
                return False
            time.sleep(0.5)

    def _in_use_error(self, text: bytes) -> UserError:
        """Error for a folder in use, with the process named in the lock file (`text`)."""
        found, advice = "another process has locked it", "Wait until it ends, or choose another folder with --run."
        if owner := _parse_signature(text):
            stop = f"`kill {owner['pid']}` on {owner['host']}"
            if "job" in owner:
                stop = f"`{SCHEDULERS[owner['scheduler']].cancel} {owner['job']}`"
            found = f"{describe_process(owner)} has used it since {owner['since']}"
            advice = f"Wait until it ends, stop it with {stop}, or choose another folder with --run."
        return UserError(f"the run folder {self.path} is in use: {found}", hint=advice, file=self.path)

    def _check_place(self) -> None:
        """Refuse to write if the locked folder is missing, e.g. after a lost network disk."""
        if not self.signature:
            return
        with suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                return
        message = f"the run folder {self.path} has gone, or another folder is in its place"
        hint = "Is its file system still mounted? When it is back, the same command resumes."
        raise UserError(message, hint=hint, file=self.path)

    def write(self, name: str, text: str) -> Path:
        """Write a text file below the folder atomically."""
        self._check_place()
        path = self.path / name
        assert ".." not in Path(name).parts, name
        with _as_user_error(f"{len(text.encode()):,} bytes cannot be written to {path}", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, text)
        return path

    def note_stop(self, step: int, **reason: str) -> None:
        """Write stopped.json: the reason why the training ended before its last step.

        reason   `signal` or `error`
        """
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        self.write("stopped.json", json.dumps({"step": step, **reason, **present_job(), "time": when}) + "\n")

    def forget_stop(self) -> None:
        """Remove stopped.json, the note of an earlier stop."""
        with _as_user_error(f"stopped.json cannot be removed from {self.path}", self.path):
            (self.path / "stopped.json").unlink(missing_ok=True)

    def seal(self, files: Mapping[str, str | None], anew: bool = False) -> None:
        """Write text files and record their hashes in the manifest.

        files  text by file name; None removes the file
        anew   start a new manifest, without the files of the old manifest
        """
        self._check_place()
        with _as_user_error(f"{', '.join(files)} cannot be written to {self.path}", self.path):
            texts = {name: None if text is None else text.encode() for name, text in files.items()}
            self.files.write(texts, anew)

    def read_json(self, name: str) -> Any:
        """Read a JSON file of the folder, after checking its hash in the manifest."""
        path = self.path / name
        data = self.files.read(name)
        try:
            return json.loads(data, object_hook=Stored)
        except (ValueError, RecursionError) as error:
            hint = "Is the run folder complete?"
            raise UserError(f"{path} cannot be read as JSON: {error}", hint=hint, file=path) from error

    def scores(self) -> dict[str, Any]:
        """Contents of scores.json; empty if the file is missing or damaged."""
        found = self.peek("scores.json")
        return found if are_scores(found) else {}

    def peek(self, name: str) -> dict[str, Any]:
        """JSON object in a file; an empty object if the file cannot be read."""
        try:
            return parse_object((self.path / name).read_bytes(), name)
        except (OSError, Unsound):
            return {}

    def append(self, record: dict[str, Any]) -> None:
        """Append a record to the log, without a sync (a power failure may lose it)."""
        self._check_place()
        assert_plain(record, "record")
        line = json.dumps(record).encode() + b"\n"
        failed = f"the log {self.log} cannot be appended to"
        with _as_user_error(failed, self.log), open(self.log, "ab+", opener=_open_without_links) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # an incomplete line of a killed process
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line)

    def secure(self) -> None:
        """Sync the log to disk, so that a power failure loses no record."""
        self._check_place()
        with _as_user_error(f"the log {self.log} cannot be written to the disk", self.log):
            if self.log.exists():
                sync(self.log)

    def records(self) -> list[dict[str, Any]]:
        """All records of the log, without an incomplete last line."""
        return [record for _, record in self._lines()]

    def rewind(self, step: int) -> None:
        """Remove log records after `step` and an incomplete last line, before resuming."""
        lines = self._lines()
        kept = b"".join(line for line, record in lines if record.get("step", step) <= step)
        with _as_user_error(f"the log {self.log} cannot be rewritten", self.log):
            if self.log.exists() and self.log.stat().st_size != len(kept):
                replace(self.log, kept)

    def _lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Each line of the log: its bytes and its record."""
        with _as_user_error(f"the log {self.log} cannot be read", self.log):
            text = self.log.read_bytes() if self.log.exists() else b""
        lines = []
        for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(keepends=True), 1):
            try:
                record = json.loads(line)
                if not is_record(record):
                    raise ValueError(f"a {type(record).__name__}")
            except (ValueError, RecursionError) as error:
                message = f"line {number} of {self.log} is not a JSON record: {line[:60]!r}"
                hint = "Delete the line, or restore the log from a copy."
                raise UserError(message, hint=hint, file=self.log, line=number) from error
            lines.append((line, record))
        return lines


def _parse_signature(text: bytes) -> dict[str, Any]:
    """Contents of a lock file; empty if the text is not valid."""
    try:
        signed = parse_object(text, ".lock")
        made = {"pid": int(signed["pid"]), "host": str(signed["host"]), "since": str(signed["since"])}
        if signed.get("scheduler") in SCHEDULERS:
            made |= {"scheduler": signed["scheduler"], "job": str(signed["job"])}
        return made
    except (Unsound, ValueError, TypeError, KeyError):
        return {}


def _open_without_links(path: str, flags: int) -> int:
    return os.open(path, flags | NOFOLLOW, 0o666)


@contextmanager
def _as_user_error(message: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _folder_error(message, path, error) from error


def _folder_error(message: str, path: Path, error: OSError) -> UserError:
    advice = {
        errno.EEXIST: "A file has this name: choose another folder with --run.",
        errno.ENOTDIR: "A part of the path is a file: choose another folder with --run.",
        errno.ENAMETOOLONG: "Choose a shorter path with --run.",
        errno.ENOSPC: "Free space on that disk, or choose another folder with --run.",
        errno.EDQUOT: "Free space within your quota, or choose another folder with --run.",
        errno.ENOENT: "Create the folder first.",
        errno.ELOOP: "Links in a run folder are not followed: remove the link, or choose another folder with --run.",
    }
    why = f"{error.strerror or error} ({error.filename or path})"
    hint = advice.get(error.errno or 0, "Choose another folder with --run.")
    return UserError(f"{message}: {why}", hint=hint, file=path)
