"""Command-line options for predictions in shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..cluster.shards import Sharding, merge_shards, predict_shards
from ..errors import UserError
from .show import count_words
from .terminal import log

if TYPE_CHECKING:
    from ..run import Run


def parse_sharding(out: Path, shards: int | None, shard: int | None, form: str) -> Sharding:
    """Number and file format of the shards, from the options of the command `predict`."""
    if shards is None:
        raise UserError(f"--shard {shard} needs --shards, the number of shards", key="--shards")
    made = Sharding(shards, f".{form.removeprefix('.')}")
    if shard is not None:
        made.check(shard)
    if out.is_file() or out.suffix == made.suffix or str(out) == "predictions.csv":
        hint = "Name a folder and the format of its files, for example --out scores/ --format parquet."
        raise UserError(f"with --shards, --out is a folder, not the file {out}", hint=hint, key="--out", file=out)
    return made


def predict_in_shards(
    run: Run, files: tuple[Path, ...], out: Path, sharding: Sharding, shard: int | None, show: bool, accept_drift: bool
) -> None:
    """Predict one shard or all missing shards; print the next command to run."""
    made = predict_shards(run, files, out, sharding, shard, show=show, accept_drift=accept_drift, log=log)
    missing = made.missing()
    left = f"{count_words(len(missing), 'shard')} of {sharding.count:,} missing" if missing else "all shards are done"
    print(f"{out}: {left}")


def merge_into(folder: Path, out: Path, overwrite: bool) -> None:
    """Merge a folder of shards into a table."""
    count = merge_shards(folder, out, overwrite, log)
    print(f"wrote {count_words(count, 'prediction')} to {out}")
