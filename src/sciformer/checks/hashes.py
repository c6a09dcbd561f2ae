"""List of SHA-256 hashes of data files, in the format of `sha256sum -c`.

A comparison with the list finds bits that have flipped since the list was written. HDF5, Parquet and FITS files have no
checksum of their own by default, so a flipped bit silently changes a number.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from ..files.atomic import write_text

LINE = re.compile(r"([0-9a-f]{64})[ \t]+\*?([^\0]+)")


def compare_hashes(listed: Path, files: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Compare files with a list of hashes; return problems and notes.

    A list that does not exist is written. File names in the list are relative to its folder.
    """
    if not files:
        return [], ["The data have no files: there is nothing to hash."]
    found = {file: hash_of(file) for file in files}
    if not listed.exists():
        lines = [f"{digest}  {os.path.relpath(file, listed.parent)}\n" for file, digest in found.items()]
        write_text(listed, "".join(lines))
        return [], [f"The hashes of {len(found):,} files were written to {listed}."]
    known = read_hashes(listed)
    changed = [file for file, digest in found.items() if known.get(file.resolve(), digest) != digest]
    new = [file for file in found if file.resolve() not in known]
    problems = [f"{file} differs from its hash in {listed}: its SHA-256 is {found[file][:16]}..." for file in changed]
    problems = [f"{problem} Copy it again, or remove {listed.name} if the change is wanted." for problem in problems]
    if len(new) == len(found):
        return [
            f"{listed} has none of the {len(found):,} data files, such as {new[0]}. Remove it, or move it back."
        ], []
    notes = [f"{len(new):,} files are not in {listed}, the first is {new[0]}."] if new else []
    return problems, notes + [f"{len(found) - len(changed) - len(new):,} files agree with their hashes in {listed}."]


def hash_of(path: Path) -> str:
    """SHA-256 of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_hashes(listed: Path) -> dict[Path, str]:
    """Read a file with a SHA-256 and a file name on each line: {absolute path: hash}."""
    known = {}
    for number, line in enumerate(listed.read_text("utf-8", "replace").splitlines(), 1):
        if not (match := LINE.fullmatch(line)):
            message = f"line {number} of {listed} is not a SHA-256 and a file name: {line[:60]!r}"
            raise UserError(message, file=listed, line=number)
        known[(listed.parent / match[2]).resolve()] = match[1]
    return known
