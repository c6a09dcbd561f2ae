"""Shards of predictions: one file for each range of samples, made by any process.

    predict_shards(Run("runs/mine"), files, Path("scores"), Sharding(64), 3)
    merge_shards(Path("scores"), Path("scores.parquet"))

    scores/shards.json                        run, input files and number of shards; the same for all processes
    scores/shard-00003-of-00064.parquet       predictions of a range of samples
    scores/shard-00003-of-00064.json          written last: size and hash of the predictions, numbers of rows, notes

A single process predicts samples in blocks (`evaluation.blocks`), and a shard is a range of these blocks. So the merged
shards equal the table of a single process, byte for byte. A shard is done if both of its files exist and agree; else it
is predicted again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..data.fileset import split_tag
from ..data.source import expand_glob, fingerprint, locate
from ..errors import UserError
from ..files.atomic import make_folder, replace
from ..files.formats.base import TablePart, format_of
from ..files.packages import require
from ..files.seal import MODEL_FILES, Unsound, open_regular, parse_object, seal_file
from ..files.tables import check_table, create_table, merge_tables, table_suffixes

if TYPE_CHECKING:
    from ..evaluation.blocks import Inputs
    from ..run import Run

FORMAT = 1
PLAN = "shards.json"
MAX_SHARDS = 100_000
MAX_HASHED_BYTES = 4 << 30  # sum over the input files; above it, files are compared by size and time alone


@dataclass(frozen=True)
class Sharding:
    """Number of shards of a prediction, and their file suffix."""

    count: int
    suffix: str = ".parquet"

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_SHARDS:
            raise UserError(f"--shards must be from 1 to {MAX_SHARDS:,}, not {self.count}", key="--shards")
        if self.suffix not in table_suffixes():
            known = ", ".join(one.removeprefix(".") for one in table_suffixes())
            message = f"the format of shards must be one of {known}, not {self.suffix.removeprefix('.')}"
            raise UserError(message, key="--format")

    def check(self, shard: int) -> None:
        """Refuse a shard number outside 0 .. number of shards - 1."""
        if not 0 <= shard < self.count:
            message = f"--shard must be from 0 to {self.count - 1}, but is {shard}"
            raise UserError(message, hint=f"There are {self.count} shards.", key="--shard")


class ShardFolder:
    """Folder of predictions in shards: shards.json, and the files of each shard."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Contents of shards.json."""
        try:
            with open_regular(self.path / PLAN) as file:
                plan = parse_object(file.read(), PLAN)
        except (OSError, Unsound) as error:
            message = f"{self.path} is not a folder of shards: {error}"
            hint = "Write the shards first: sciformer predict RUN FILES --shards 64 --out FOLDER"
            raise UserError(message, hint=hint, file=self.path) from error
        if plan.get("format") != FORMAT:
            message = f"{self.path / PLAN} has format {plan.get('format')}, but this Sciformer reads format {FORMAT}"
            raise UserError(message, hint="Was it written by a newer version? Then update Sciformer.", file=self.path)
        return plan

    @property
    def sharding(self) -> Sharding:
        """Number and format of the shards."""
        return Sharding(int(self.plan["shards"]), str(self.plan["suffix"]))

    @cached_property
    def plan_hash(self) -> str:
        """Hash of the plan, repeated in the record of each finished shard."""
        return hashlib.sha256(json.dumps(self.plan, sort_keys=True).encode()).hexdigest()

    def file(self, shard: int) -> Path:
        """Path of the predictions of a shard."""
        return self.path / f"shard-{shard:05d}-of-{self.sharding.count:05d}{self.sharding.suffix}"

    def record(self, shard: int, verify: bool = False) -> dict[str, Any] | None:
        """JSON record of a shard; None if missing, incomplete or of another plan.

        verify   also compare the hash of the predictions
        """
        path = self.file(shard)
        try:
            record = parse_object(path.with_suffix(".json").read_bytes(), path.name)
            fits = record["plan"] == self.plan_hash and record["bytes"] == path.stat().st_size
            return record if fits and (not verify or seal_file(path)["sha256"] == record["sha256"]) else None
        except (OSError, Unsound, KeyError):
            return None

    def missing(self) -> list[int]:
        """Numbers of the shards still to be predicted."""
        return [shard for shard in range(self.sharding.count) if self.record(shard) is None]

    @contextmanager
    def lock(self, name: str, wait: bool) -> Iterator[bool]:
        """Context manager for a lock file; yields whether this process holds the lock.

        wait   wait until another process releases the lock
        """
        if sys.platform == "win32":  # shards are written atomically: without locks, work is only done twice
            yield True
            return
        import fcntl

        path = self.path / f".{name}.lock"
        with path.open("wb") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except OSError as error:
                yield error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # the file system has no locks
                return
            yield True
            with suppress(OSError):
                path.unlink()


def plan_shards(run: Run, inputs: Inputs, folder: Path, sharding: Sharding) -> ShardFolder:
    """Write shards.json into a folder; refuse a folder with another plan."""
    if not (folder / PLAN).exists():
        inputs.open(0)  # files that cannot be read are refused before anything is written
    made = ShardFolder(make_folder(folder))
    paths = [path for path in find_inputs(inputs.files) if folder.resolve() not in path.parents]
    plan = {
        "format": FORMAT,
        "sciformer": __version__,
        "run": str(run.path),
        "model": run.folder.files.hashes(MODEL_FILES),
        "columns": run.columns,
        "shards": sharding.count,
        "suffix": sharding.suffix,
    }
    with made.lock("shards", wait=True):  # only one process computes the hashes of the files
        if not (folder / PLAN).exists():
            replace(folder / PLAN, json.dumps({**plan, "files": describe_files(paths)}, indent=1) + "\n")
    _check_same_plan(made, plan, paths)
    return made


def _check_same_plan(folder: ShardFolder, plan: dict[str, Any], paths: Sequence[Path]) -> None:
    """Refuse a folder planned for another model, other files or other shards."""
    old, where = folder.plan, folder.path
    hint = f"Choose another folder with --out, or remove {where}."
    words = {
        "model": f"of another model ({old.get('run')})",
        "columns": f"with other columns (--map {old.get('columns')})",
        "shards": f"in {old.get('shards')} shards, not {plan['shards']}",
        "suffix": f"in the format {old.get('suffix')}, not {plan['suffix']}",
    }
    for key, said in words.items():
        if old.get(key) != plan[key]:
            raise UserError(f"{where} has predictions {said}", hint=hint, file=where)
    known = {one["file"]: one for one in old["files"]}
    if [*known] != [*map(str, paths)]:
        odd = sorted({*known} ^ {*map(str, paths)})
        said = f"other files, such as {odd[0]}" if odd else "the same files in another order"
        raise UserError(f"{where} has predictions for {said}", hint=hint, file=where)
    for path in paths:
        if not _is_unchanged(path, known[str(path)]):
            raise UserError(f"{path} has changed since the first shard of {where}", hint=hint, file=path)


def find_inputs(files: Sequence[str | Path]) -> list[Path]:
    """Paths of the input files; globs and folders are replaced by the files in them.

    files   names, globs and folders; a class may stand in front: `signal=a.root`
    """
    found: list[Path] = []
    for _, name in map(split_tag, files):
        path = Path(locate(name))
        found += sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else expand_glob(path)
    return list(dict.fromkeys(found))


def describe_files(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Size, modification time and hash of each file.

    The hashes are None if the files have more than `MAX_HASHED_BYTES` in total.
    """
    found = [(path, path.stat()) for path in paths]
    small = sum(status.st_size for _, status in found) <= MAX_HASHED_BYTES
    return [
        {
            "file": str(path),
            "bytes": status.st_size,
            "modified": status.st_mtime_ns,
            "hash": fingerprint(path) if small else None,
        }
        for path, status in found
    ]


def _is_unchanged(path: Path, old: dict[str, Any]) -> bool:
    """Whether a file has the recorded size, and the recorded time or hash."""
    status = path.stat()
    if status.st_size != old["bytes"] or status.st_mtime_ns == old["modified"]:
        return bool(status.st_size == old["bytes"])
    return old["hash"] is not None and fingerprint(path) == old["hash"]


def predict_shards(
    run: Run,
    files: Sequence[str | Path],
    folder: Path,
    sharding: Sharding,
    shard: int | None = None,
    *,
    show: bool = False,
    accept_drift: bool = False,
    log: Callable[[str], None] = lambda text: None,
) -> ShardFolder:
    """Predict one shard, or all missing shards, and write them into a folder.

    Finished shards are not predicted again. Several processes may work in one folder.

    shard          number of the shard (default: all missing shards)
    show           show a progress bar
    accept_drift   predict even if the scale of a column differs from the training data
    """
    from ..evaluation.blocks import Inputs

    if shard is not None:
        sharding.check(shard)
    for name in format_of(folder / f"shard{sharding.suffix}").packages:
        require(name, f"{sharding.suffix} files")
    inputs = Inputs(run.assembly, files)
    made = plan_shards(run, inputs, folder, sharding)
    for number in range(sharding.count) if shard is None else [shard]:
        with made.lock(f"shard-{number:05d}", wait=False) as ours:
            if not ours:
                if shard is not None:
                    message = f"shard {number} of {folder} is being predicted by another process"
                    raise UserError(message, hint="Wait until it ends.", key="--shard", file=folder)
                log(f"shard {number} is being predicted by another process")
            elif made.record(number, verify=True) is not None:
                log(f"shard {number} is done")
            else:
                _predict(run, inputs, made, number, show, accept_drift)
                log(f"wrote {made.file(number)}")
    return made


def _predict(run: Run, inputs: Inputs, folder: ShardFolder, shard: int, show: bool, accept_drift: bool) -> None:
    """Predict a shard; write its predictions and its JSON record."""
    from ..evaluation.blocks import Share
    from ..evaluation.predictions import add_block, predict_files
    from ..progress import ProgressBar

    path = folder.file(shard)
    for old in folder.path.glob(f".{path.name}.*.partial"):  # of a killed process
        old.unlink(missing_ok=True)
    watch, notes = run.assembly.compare(accept_drift, scores=True), dict[int, list[str]]()
    share = Share(shard, folder.sharding.count)
    with create_table(path, overwrite=True) as file, ProgressBar(0, show=show) as bar:
        for table, predictions in predict_files(run, inputs, watch, bar, share, notes):
            add_block(file, run, table, predictions)
        if file.opened is None:  # no block is left for this shard: its table has columns and no rows
            quiet, other = ProgressBar(0, show=False), run.assembly.compare(accept_drift, scores=True)
            for table, predictions in islice(predict_files(run, inputs, other, quiet), 1):
                add_block(file, run, table, predictions, empty=True)
    if run.folder.files.hashes(MODEL_FILES) != folder.plan["model"]:
        message = f"the model of {run.path} has changed during the prediction of {path}"
        raise UserError(message, hint="Predict all shards again, in another folder.", file=run.path)
    record = {
        "plan": folder.plan_hash,
        **seal_file(path),
        "columns": file.columns,
        "rows": file.rows,
        "about": list(file.about),
        "notes_of_files": notes,
        "notes": {} if watch is None else watch.found,
    }
    replace(path.with_suffix(".json"), json.dumps(record) + "\n")


@dataclass(frozen=True)
class ShardsState:
    """Progress of predictions in shards."""

    folder: str
    state: str
    shards: int
    done: int
    missing: list[int]
    samples: int
    """Number of samples predicted so far."""
    run: str

    def describe(self) -> list[str]:
        """Lines of text for the terminal, without the name of the folder."""
        lines = [f"{self.state}  {self.done:,} of {self.shards:,} shards  {self.samples:,} samples  by {self.run}"]
        return [*lines, *([f"missing: {describe_numbers(self.missing)}"] if self.missing else [])]


def shards_state(path: Path) -> ShardsState:
    """Progress of the predictions in a folder."""
    folder = ShardFolder(path)
    records = [folder.record(shard) for shard in range(folder.sharding.count)]
    missing = [shard for shard, record in enumerate(records) if record is None]
    state, done = "incomplete" if missing else "complete", len(records) - len(missing)
    samples = sum(sum(record["rows"]) for record in records if record is not None)
    return ShardsState(str(path), state, len(records), done, missing, samples, str(folder.plan["run"]))


def merge_shards(folder: Path, out: Path, overwrite: bool = False, log: Callable[[str], None] = print) -> int:
    """Write all shards of a folder into one table; return the number of samples.

    log   function that prints the notes about the data
    """
    made = ShardFolder(folder)
    suffix = made.sharding.suffix
    if out.suffix != suffix:
        hint = f"Use the name {out.with_suffix(suffix)}, or predict the shards with --format {out.suffix[1:]}."
        raise UserError(f"the shards of {folder} have the format {suffix}, not {out.suffix}", hint=hint, file=out)
    check_table(out, (suffix,), overwrite)
    records = [made.record(shard, verify=True) for shard in range(made.sharding.count)]
    if lost := [shard for shard, record in enumerate(records) if record is None]:
        message = f"{folder} lacks {len(lost)} of {len(records)} shards, or they are damaged: {describe_numbers(lost)}"
        hint = "Run the same prediction command again; without --shard it predicts all missing shards."
        raise UserError(message, hint=hint, file=folder)
    found = [record for record in records if record is not None]
    of_files: dict[str, list[str]] = {}
    notes: dict[str, str] = {}
    for record in found:
        of_files |= record["notes_of_files"]
        for key, note in record["notes"].items():
            notes.setdefault(key, note)  # the first note on a column counts, as for one process
    for note in [*chain(*(of_files[key] for key in sorted(of_files, key=int))), *notes.values()]:
        log(f"note: {note}")
    parts = [
        TablePart(made.file(shard), record["columns"], record["rows"], record["about"])
        for shard, record in enumerate(found)
    ]
    return merge_tables(out, parts, overwrite)


def describe_numbers(numbers: Sequence[int]) -> str:
    """Ranges of ascending numbers in the notation of schedulers: 0,3-7,9."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
