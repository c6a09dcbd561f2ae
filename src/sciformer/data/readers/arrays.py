"""NumPy files: named columns of an .npz, or one array of an .npy."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError, one_of
from ..source import Chosen, Data, Memory, Source, Splits, Table, find_files, fingerprint, rows_of
from ..split import Split


class Arrays(Data):
    """Columns of one or several .npz files (or .npy files, whose array is the column `array`)."""

    files: list[str] = []
    """Names or globs of the files; several are joined sample by sample."""
    rename: dict[str, str] = {}
    """New names of columns: {image: pictures, label: y} calls `pictures` `image` and `y` `label`."""
    split: Split = Split()
    """Shares kept apart."""

    def open(self, say: Any = None) -> Splits:
        """Read the files and divide the samples."""
        paths = find_files(self.files, "NumPy files")
        whole = self.read(paths)
        table = whole.load(0)
        groups = None
        if self.split.by:
            one_of("data.split.by", self.split.by, table)
            groups = table[self.split.by]
        rows = self.split.divide(rows_of(table), groups)
        return Splits(
            {name: Chosen(whole, kept) for name, kept in rows.items()}, {str(path): fingerprint(path) for path in paths}
        )

    def read(self, files: Sequence[str | Path]) -> Source:
        """All samples of these files."""
        tables = [self._renamed(read_arrays(path), path) for path in find_files(files, "NumPy files")]
        names = [set(table) for table in tables]
        if any(found != names[0] for found in names):
            odd = next(i for i, found in enumerate(names) if found != names[0])
            raise UserError(
                f"columns {', '.join(sorted(names[0]))} in every file, as in {files[0]}",
                f"{', '.join(sorted(names[odd]))} in {files[odd]}",
            )
        return Memory({name: np.concatenate([np.asarray(table[name]) for table in tables]) for name in tables[0]})

    def _renamed(self, table: dict[str, Any], path: Path) -> Table:
        for new, old in self.rename.items():
            one_of(f"a column of {path} for data.rename.{new}", old, table)
            table[new] = table.pop(old)
        rows_of(table)
        return table


def read_arrays(path: Path) -> dict[str, Any]:
    """The columns of a file; anything pickled is refused."""
    if path.suffix not in (".npz", ".npy"):
        raise UserError(
            "a file named .npz or .npy", f"{path}", "Write one with numpy.savez(path, image=..., label=...)."
        )
    try:
        loaded = np.load(path, allow_pickle=False)
        return {"array": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except ValueError as error:
        if "allow_pickle" in str(error) or "pickle" in str(error).lower():
            raise UserError(
                f"plain numbers or strings in {path}", "Python objects, which can run code", "Save plain arrays."
            ) from error
        raise UserError(f"a whole NumPy file at {path}", f"{error}") from error
    except (OSError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile, KeyError, zlib.error) as error:
        raise UserError(f"a whole NumPy file at {path}", f"{error}", "Was it cut off? Write it again.") from error
