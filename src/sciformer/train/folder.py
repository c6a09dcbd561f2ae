"""A run is a folder: where its files are, who may write in it, and its log."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files.atomic import replace, sync

# The lock is a POSIX record lock (lockf). flock would belong to the open file, which a fork shares: a data worker that
# outlives its killed parent would keep the run locked. A record lock belongs to the process alone, whoever forks, and
# the kernel drops it with the process. Its price: it is also dropped when the process closes *any* descriptor of the
# file. So nothing but `lock` opens `.lock`, and `lock` looks into LOCKED_FOLDERS before it does. Windows has no fcntl:
# there a byte far behind the text is locked, which no child inherits either (written from the manual, not tested).
if sys.platform == "win32":
    import msvcrt

    def _take_lock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take_lock(descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # a run folder may come from others: links in it are not written through
LOCKED_FOLDERS: set[tuple[int, int, int]] = set()  # (process, device, inode) of the folders locked by this process


def remove(path: Path) -> None:
    """Remove what no longer counts, and tell what resists; the next save tries again."""
    if path.is_symlink() or path.is_file():
        with suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        warnings.warn(f"{path} is no longer needed but could not be removed", RuntimeWarning, stacklevel=4)


def is_alive(pid: int) -> bool:
    """Whether another process of this number runs on this host."""
    if pid == os.getpid():
        return False
    if sys.platform == "win32":
        return True  # there, asking by a signal would end it
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def assert_plain(value: Any, where: str) -> None:
    """JSON gives back what it was given only for these types: a tuple would return as a list, the key 1 as "1"."""
    if type(value) is dict:
        for key, item in value.items():
            assert type(key) is str, f"{where} has the key {key!r}, which is no text"
            assert_plain(item, f"{where}.{key}")
    elif type(value) is list:
        for index, item in enumerate(value):
            assert_plain(item, f"{where}[{index}]")
    else:
        assert value is None or type(value) in (str, bool, int, float), f"{where} is no plain JSON: {type(value)}"


class Folder:
    """The folder of a run.

    recipe        `recipe.yaml`, the resolved recipe
    log           `metrics.jsonl`, a JSON record a line
    checkpoints   folder of the checkpoints
    model         folder of the best model
    calibration   `model/calibration.json`, where a calibration was fitted
    report        `report.html`, a page to look at
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.recipe, self.log, self.report = (
            self.path / name for name in ("recipe.yaml", "metrics.jsonl", "report.html")
        )
        self.checkpoints, self.model = self.path / "checkpoints", self.path / "model"
        self.calibration = self.model / "calibration.json"

    def __repr__(self) -> str:
        return f"Folder({str(self.path)!r})"

    def create(self) -> None:
        """Make the folder where there is none, and show by a probe that checkpoints can be written in it."""
        # As long as the longest name that a checkpoint writes: a path too long for it is found out now.
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
            if os.access(self.path.parent, os.R_OK):  # a folder of many users may hide its names
                sync(self.path.parent)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process out of the folder, until the block ends or this process dies, however it dies."""
        with _as_user_error(f"the run folder {self.path} cannot be locked", self.path):
            inode = os.stat(self.path)
            me = (os.getpid(), inode.st_dev, inode.st_ino)
            if me in LOCKED_FOLDERS:
                raise UserError(
                    f"the run folder {self.path} is in use: this process ({me[0]}) has locked it already",
                    file=self.path,
                )
            descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o644)
        try:
            self._claim(descriptor)
            LOCKED_FOLDERS.add(me)
            try:
                yield
            finally:
                LOCKED_FOLDERS.discard(me)
                if os.getpid() == me[0]:  # a forked child that leaves the block has no lock to give back
                    os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def _claim(self, descriptor: int) -> None:
        """Take the lock and sign it, or tell who has it."""
        try:
            _take_lock(descriptor)
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
                text = f"the file system of {self.path} has no locks ({error.strerror}): start only one process in it"
                warnings.warn(text, RuntimeWarning, stacklevel=5)
            elif error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                os.lseek(descriptor, 0, os.SEEK_SET)
                raise self._in_use_error(os.read(descriptor, 4096)) from error
            else:
                raise _folder_error(f"the run folder {self.path} cannot be locked", self.path, error) from error
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
        with _as_user_error(f"the run folder {self.path} cannot be locked", self.path):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, text.encode())

    def _in_use_error(self, text: bytes) -> UserError:
        """Name the holder; it may be between taking the lock and signing it."""
        try:
            owner = json.loads(text)
            pid, host, since = int(owner["pid"]), str(owner["host"]), str(owner["since"])
            found = f"process {pid} on {host} has worked in it since {since}"
            advice = f"Wait until it ends, stop it with `kill {pid}` on {host}, or name another folder with --run."
        except (ValueError, TypeError, KeyError):
            found = "another process, which has not yet given its name, works in it"
            advice = "Wait until it ends, or name another folder with --run."
        return UserError(f"the run folder {self.path} is in use: {found}", hint=advice, file=self.path)

    def write(self, name: str, text: str) -> Path:
        """Write a text file below the folder, whole or not at all."""
        path = self.path / name
        assert ".." not in path.relative_to(self.path).parts, name
        with _as_user_error(f"{len(text.encode()):,} bytes cannot be written to {path}", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, text)
        return path

    def append(self, record: dict[str, Any]) -> None:
        """Add one record to the log and hand it to the system: it outlives this process, not a loss of power."""
        assert_plain(record, "record")
        line = json.dumps(record).encode() + b"\n"
        failed = f"no line can be added to the log {self.log}"
        with _as_user_error(failed, self.log), open(self.log, "ab+", opener=_open_without_links) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # torn by a kill; a line counts when its end is there
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line)

    def secure(self) -> None:
        """Wait until the log is on the disk."""
        with _as_user_error(f"the log {self.log} cannot be written to the disk", self.log):
            if self.log.exists():
                sync(self.log)

    def records(self) -> list[dict[str, Any]]:
        """All records of the log; a last line torn by a kill is left out."""
        return [record for _, record in self._lines()]

    def rewind(self, step: int) -> None:
        """Drop the records after `step`, and a torn line: the log of a run that goes on from there."""
        lines = self._lines()
        kept = b"".join(line for line, record in lines if record.get("step", step) <= step)
        with _as_user_error(f"the log {self.log} cannot be rewritten", self.log):
            if self.log.exists() and self.log.stat().st_size != len(kept):
                replace(self.log, kept)

    def _lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        """The lines of the log as they stand there, and what they say."""
        with _as_user_error(f"the log {self.log} cannot be read", self.log):
            text = self.log.read_bytes() if self.log.exists() else b""
        lines = []
        for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(keepends=True), 1):
            try:
                record = json.loads(line)
                if type(record) is not dict:
                    raise ValueError(f"a {type(record).__name__}")
            except (ValueError, RecursionError) as error:
                message = f"line {number} of {self.log} is not a JSON record: {line[:60]!r}"
                hint = "Delete the line, or restore the log from a copy."
                raise UserError(message, hint=hint, file=self.log, line=number) from error
            lines.append((line, record))
        return lines


def _open_without_links(path: str, flags: int) -> int:
    return os.open(path, flags | NOFOLLOW, 0o666)


@contextmanager
def _as_user_error(failed: str, path: Path) -> Iterator[None]:
    """Answer an error of the file system as one that the user can mend."""
    try:
        yield
    except OSError as error:
        raise _folder_error(failed, path, error) from error


def _folder_error(failed: str, path: Path, error: OSError) -> UserError:
    advice = {
        errno.EEXIST: "There is a file of that name: name another folder with --run.",
        errno.ENOTDIR: "A part of the path is a file: name another folder with --run.",
        errno.ENAMETOOLONG: "Name a folder with a shorter path with --run.",
        errno.ENOSPC: "Make room on that disk, or name another folder with --run.",
        errno.EDQUOT: "Make room within your quota, or name another folder with --run.",
        errno.ENOENT: "Make the folder first.",
        errno.ELOOP: "Nothing is written through links in a run folder: remove it, or name another with --run.",
    }
    why = f"{error.strerror or error} ({error.filename or path})"
    hint = advice.get(error.errno or 0, "Name another folder with --run.")
    return UserError(f"{failed}: {why}", hint=hint, file=path)
