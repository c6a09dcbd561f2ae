"""Manifest with size and SHA-256 of files (the «seal»), to detect changed bytes.

    manifest.json    {"format": 1, "files": {"recipe.yaml": [{"bytes": 812, "sha256": "..."}], ...}, "sha256": "..."}

The manifest of a run is written twice: before the files, with the old and the new seal of each file, and after the
files, with the new seals only. So at any time, even after a kill, the manifest has the seal of each file.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from ..errors import UserError
from .atomic import replace, sync

FORMAT = 1
MANIFEST = "manifest.json"
MODEL_FILES = ("recipe.yaml", "model/statistics.json", "model/calibration.json", "model/weights.safetensors")
MAX_BYTES_IN_MEMORY = 2 << 30  # files up to this size are read once, hashed and parsed from the same bytes

Seal = dict[str, Any]  # bytes and sha256


class Unsound(Exception):
    """Error: a file is missing or damaged, or is not a regular file."""


class Damaged(UserError):
    """Error: a file of a run has changed since it was written."""


class Stored(dict[str, Any]):
    """JSON object of a run; a missing entry means a damaged file, not a KeyError."""

    def __missing__(self, key: str) -> Any:
        hint = "The run is damaged, or from another version of Sciformer: restore it from a copy."
        raise Damaged(f"the stored state of the run has no entry {key!r}", hint=hint)


def seal_file(path: Path) -> Seal:
    """Sync a file to disk; return its size and hash."""
    sync(path)
    with open(path, "rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def seal_bytes(data: bytes) -> Seal:
    """Size and hash of the contents of a file."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def is_seal(value: Any) -> bool:
    """Whether a value in a manifest has the form of a size and a hash."""
    return type(value) is dict and type(value.get("bytes")) is int and type(value.get("sha256")) is str


def read_verified(path: Path, seals: Sequence[Seal], links: bool = False, keep: bool = True) -> bytes:
    """Bytes of a file, verified by hash; b"" above `MAX_BYTES_IN_MEMORY`.

    links    follow a symbolic link; its target is verified by hash, too
    keep     return the bytes (default); if false, only verify the file and return b""
    """
    with open_regular(path, links) as file:
        size = os.fstat(file.fileno()).st_size
        fitting = [seal["sha256"] for seal in seals if seal["bytes"] == size]
        if not fitting:
            short = seals[-1]["bytes"] - size
            raise Unsound(f"{path.name} is {abs(short):,} bytes too {'short' if short > 0 else 'long'}")
        data = file.read() if keep and size <= MAX_BYTES_IN_MEMORY else b""
        found = hashlib.sha256(data) if data else hashlib.file_digest(file, "sha256")
        if found.hexdigest() not in fitting:
            raise Unsound(f"{path.name} is damaged: its hash differs")
    return data


def open_regular(path: Path, links: bool = False) -> BufferedReader:
    """Open a regular file; refuse pipes, and also links if `links` is false."""
    try:
        kind = (os.stat if links else os.lstat)(path).st_mode
    except FileNotFoundError:
        raise Unsound(f"{path.name} is missing") from None
    if not stat.S_ISREG(kind):
        raise Unsound(f"{path.name} is {'a link' if stat.S_ISLNK(kind) else 'not a regular file'} and is not opened")
    return open(path, "rb")


def parse_object(data: bytes, name: str) -> dict[str, Any]:
    """Parse the JSON object of a file.

    name   name of the file, for errors
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unsound(f"{name} is not valid JSON ({error})") from error
    if type(value) is not dict:
        raise Unsound(f"{name} does not contain a JSON object")
    return value


def run_files(path: Path) -> SealedFolder:
    """Verified files of a run: all files with an effect on predictions."""
    return SealedFolder(path, (*MODEL_FILES, "run.json"), witness="run.json")


class SealedFolder:
    """Files of a folder, verified by a manifest; only one process may write at a time.

    names     file names in an old folder without a manifest
    witness   JSON file that says `"sealed": true` if the folder must have a manifest
    """

    def __init__(self, path: Path, names: Sequence[str], witness: str) -> None:
        self.path, self.names, self.witness = path, names, witness

    @property
    def sealed(self) -> bool:
        """Whether the folder has a manifest, or must have one."""
        return (self.path / MANIFEST).exists() or self._says_sealed()

    def read(self, name: str) -> bytes:
        """Bytes of a file, verified; b"" if the file has more than `MAX_BYTES_IN_MEMORY`."""
        path, manifest = self.path / name, self._manifest()
        while True:
            try:
                if manifest is None:  # made before runs had a manifest
                    with open_regular(path, links=True) as file:
                        return file.read() if os.fstat(file.fileno()).st_size <= MAX_BYTES_IN_MEMORY else b""
                if name not in manifest:
                    raise Unsound(f"{name} is not in {MANIFEST}" if path.exists() else f"{name} is missing")
                return read_verified(path, [seal for seal in manifest[name] if seal is not None], links=True)
            except Unsound as fault:
                if (newer := self._manifest()) == manifest:
                    raise self._damaged(path, str(fault)) from None
                manifest = newer  # another process was writing
            except OSError as error:
                raise self._damaged(path, f"{name} cannot be read: {error.strerror or error}") from error

    def has(self, name: str) -> bool:
        """Whether an optional file exists, or is listed in the manifest but missing.

        For a missing file, `read` raises the error.
        """
        manifest = self._manifest()
        if manifest is not None and None in manifest.get(name, [None]) and not (self.path / name).exists():
            return False
        return manifest is not None or (self.path / name).exists()

    def hashes(self, names: Sequence[str]) -> dict[str, str]:
        """SHA-256 of the existing files among `names`, from the manifest."""
        manifest = self._manifest()
        if manifest is None:
            there = [name for name in names if (self.path / name).exists()]
            return {name: seal_file(self.path / name)["sha256"] for name in there}
        last = {name: manifest[name][-1] for name in names if name in manifest}
        return {name: seal["sha256"] for name, seal in last.items() if seal is not None}

    def fits(self, name: str, data: bytes) -> bool:
        """Whether `data` has the size and hash of the file in the manifest."""
        return seal_bytes(data) in (self._manifest() or {}).get(name, [])

    def write(self, files: Mapping[str, bytes | Path | None], anew: bool = False) -> None:
        """Write files atomically and record their hashes; None removes a file.

        files   contents by name; a Path is a complete file on the same disk, to be renamed
        anew    start a new manifest if the old one is damaged or lost
        """
        try:
            manifest = self._manifest()
        except Damaged:
            if not anew:
                raise
            manifest = {}
        if manifest is None:
            there = [name for name in self.names if name not in files and (self.path / name).exists()]
            manifest = {name: [seal_file(self.path / name)] for name in there}
        after = {
            name: data if data is None else seal_file(data) if isinstance(data, Path) else seal_bytes(data)
            for name, data in files.items()
        }
        before = {name: manifest.get(name, [None]) for name in after}
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_manifest(manifest | {name: [*old, after[name]] for name, old in before.items()})
        for name, data in files.items():
            path = self.path / name
            if data is None:
                path.unlink(missing_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(data, Path):
                os.replace(data, path)
                sync(path.parent)
            else:
                replace(path, data)
        self._write_manifest(manifest | {name: [seal] for name, seal in after.items()})

    def _write_manifest(self, manifest: Mapping[str, Sequence[Seal | None]]) -> None:
        files = {}
        for name, seals in sorted(manifest.items()):
            distinct = [seal for index, seal in enumerate(seals) if seal not in seals[:index]]
            if distinct != [None]:
                files[name] = distinct
        text = json.dumps({"format": FORMAT, "files": files, "sha256": _digest(files)}, indent=1)
        replace(self.path / MANIFEST, text + "\n")

    def _manifest(self) -> dict[str, list[Seal | None]] | None:
        """Sizes and hashes by file; None if the folder never had a manifest."""
        path = self.path / MANIFEST
        try:
            with open_regular(path, links=True) as file:
                manifest = parse_object(file.read(1 << 20), MANIFEST)
        except Unsound as fault:
            if not path.exists() and not self._says_sealed():
                return None
            raise self._damaged(path, str(fault)) from None
        form, files = manifest.get("format"), manifest.get("files")
        if type(form) is int and form > FORMAT:
            message = f"{path} has format {form}, but this Sciformer reads format {FORMAT}"
            raise UserError(message, hint="It was written by a newer version: update Sciformer.", file=path)
        if form != FORMAT or type(files) is not dict or manifest.get("sha256") != _digest(files):
            raise self._damaged(path, f"{MANIFEST} is damaged: its hash differs")
        return files

    def _says_sealed(self) -> bool:
        try:
            with open_regular(self.path / self.witness, links=True) as file:
                return parse_object(file.read(), self.witness).get("sealed") is True
        except (OSError, Unsound):
            return False

    def _damaged(self, path: Path, why: str) -> Damaged:
        again = f"sciformer train RECIPE --run {self.path}"
        hint = f"Restore {path.name} from a copy, or start over with `{again} --fresh`."
        if path.name not in (MANIFEST, self.witness):
            hint += f" Without --fresh, `{again}` writes the same file again if it can."
        return Damaged(f"a file of {self.path} is not as it was written: {why}", hint=hint, file=path)


def _digest(files: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
