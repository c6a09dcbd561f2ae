"""Run cases of a format: a damaged file is read, or refused by a `UserError`; nothing else may happen."""

import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sciformer.errors import UserError, printable
from sciformer.files.formats.base import release
from tests.fuzz.mutate import generator
from tests.fuzz.targets import TARGETS


class Case(NamedTuple):
    """Outcome of a case: `read`, `refused`, or the traceback of a failure."""

    number: int
    outcome: str


def valid_file(name: str, folder: Path) -> bytes:
    """Write the valid file of a format, and read it; returns its bytes."""
    target = TARGETS[name]
    target.write(folder / target.name)
    target.read(folder / target.name)
    release()
    return (folder / target.name).read_bytes()


def run_case(name: str, folder: Path, valid: bytes, seed: int, number: int) -> Case:
    """Read the damaged file of one case."""
    target = TARGETS[name]
    path = folder / target.name
    path.write_bytes(target.damage(valid, generator(seed, number)))
    try:
        target.read(path)
        return Case(number, "read")
    except UserError as error:
        words = str(error)
        return Case(number, "refused" if words == printable(words) else f"raw characters: {words!r}")
    except Exception:
        return Case(number, traceback.format_exc())
    finally:
        release()
        linecache.clearcache()


def cases(name: str, folder: Path, seed: int, numbers: range) -> Iterator[Case]:
    """Run the cases of some numbers."""
    valid = valid_file(name, folder)
    for number in numbers:
        yield run_case(name, folder, valid, seed, number)


def place_of(outcome: str) -> str:
    """Last line of ours in a traceback, and the exception: equal for equal failures."""
    lines = outcome.strip().split("\n")
    ours = [line.strip() for line in lines if "sciformer/" in line and line.strip().startswith("File")]
    return f"{lines[-1][:120]} | {ours[-1] if ours else ''}"


if __name__ == "__main__":  # python -m tests.fuzz.cases FORMAT FOLDER SEED NUMBER: one case again
    format_name, place, seed, number = sys.argv[1:]
    print(run_case(format_name, Path(place), valid_file(format_name, Path(place)), int(seed), int(number)).outcome)
