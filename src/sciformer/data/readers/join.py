"""Reader of samples with several streams: a table of objects, and their files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, ValidationError

from ...errors import UserError, list_names, nearest, one_of
from ...files.formats.base import Layout, as_text, open_file
from ...files.in_memory import MemoryFile
from ...recipe.registry import find, names
from ..columns import Array, Lists, Table, concatenate, rows_of, select
from ..fileset import TaggedFiles
from ..source import Chosen, Data, Memory, Source, Splits, find_files, fingerprint_files, locate, order_parts, pieces
from .series.curves import form_of

WHAT = "tables of objects"
NO_STREAMS = ("join",)


class Join(TaggedFiles):
    """Table with one row per object, joined with files for each stream of tokens.

    Streams are read by the other readers. A stream without `files` has a file for each object. Its path is in a column
    of the table, relative to the folder of the table. A stream with `files` has samples with ids. The id of the sample
    of an object is in a column of the table:

        files: [objects.csv]
        streams:
          image: {kind: images, column: path}
          curve: {kind: series, files: [curves.parquet], column: id}

    Numbers in the table are columns of the sample. An object without an entry in a stream keeps its row, with this
    stream empty; such objects are counted in notes. All samples are held in memory.
    """

    files: list[str] = Field(default_factory=list)
    """Tables of objects: names or globs of CSV, Parquet, ECSV or FITS files, one row per object."""
    streams: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Streams, by any name: each has the `kind` and the keys of a reader, and `column`, the name of the column of the
    table with file names or ids (default: id)."""

    def open(self, log: Any = None) -> Splits:
        notes, self.state["learned"] = list[str](), {}
        found = {part: self._read(find_files(files, WHAT), notes, part) for part, files in self.named().items()}
        table = found.pop("train")
        self._check_columns(table, [*self.state.get("names", ()), *self.state.get("truth", ())])
        rows = self.own_split.of_table(table, rows_of(table))
        whole = Memory(table)
        parts: dict[str, Source] = {name: Chosen(whole, kept) for name, kept in rows.items()}
        parts |= {part: Memory(one) for part, one in found.items()}
        paths = [path for files in self.named().values() for path in find_files(files, WHAT)]
        few, many = self._stream_files(paths)
        fingerprint = fingerprint_files([*paths, *few])
        return Splits(order_parts(parts), fingerprint, notes, many, dict(self.state["learned"]))

    def read(self, files: Sequence[str | Path]) -> Source:
        notes = list[str]()
        table = self._read(find_files(files, WHAT), notes, "")
        self._check_columns(table, self.state.get("names", ()))
        return Memory(table, notes)

    def absolute_paths(self) -> Self:
        made = {
            name: {**keys, "files": [locate(one) for one in _listed(keys["files"])]} if keys.get("files") else keys
            for name, keys in self.streams.items()
        }
        return super().absolute_paths().model_copy(update={"streams": made})

    def _check_columns(self, table: Table, wanted: Collection[str]) -> None:
        for name in wanted:
            if name not in table:
                message = f"the joined objects have no column `{name}`; they have {', '.join(table)}"
                hint = f"Correct the name, or add a stream with this column to data.streams. {nearest(name, table)}"
                raise UserError(message, hint=hint, key="data.files")

    def reader(self, stream: str) -> Data:
        """Reader of a stream."""
        keys = {name: value for name, value in self.streams[stream].items() if name != "column"}
        kind, where = str(keys.get("kind", "")), f"data.streams.{stream}"
        one_of(f"{where}.kind", kind, [name for name in names("data") if name not in NO_STREAMS], key=f"{where}.kind")
        if "files" in keys:
            keys["files"] = _listed(keys["files"])
        section: Any = find("data", kind).with_choices(keys)
        for name in keys:
            one_of(f"a key of {where}", name, ["column", *section.model_fields], key=f"{where}.{name}")
        try:
            made: Data = section.model_validate(keys)
        except ValidationError as error:
            first = error.errors()[0]
            inner = f"{where}.{first['loc'][0]}" if first["loc"] else where
            raise UserError(f"{inner} is wrong: {first['msg']}", key=inner) from error
        return made

    def _read(self, paths: Sequence[Path], notes: list[str], part: str) -> dict[str, Array | Lists]:
        """Join the tables of a part with their streams."""
        if not self.streams:
            hint = "Name a reader for each stream, for example {image: {kind: images, column: path}}."
            raise UserError("data.streams is empty", hint=hint, key="data.streams")
        tables = [self.read_table(path) for path in paths]
        for table, path in zip(tables, paths):
            if set(table) != set(tables[0]):
                odd = sorted(set(table) ^ set(tables[0]))[0]
                raise UserError(f"column `{odd}` is in one of these tables only: {paths[0]}, {path}", file=path)
        folders = [Path() if isinstance(path, MemoryFile) else path.parent for path in paths]
        folder = [one for one, table in zip(folders, tables) for _ in range(rows_of(table))]
        made: dict[str, Array | Lists] = concatenate(tables)
        own, owner = set(made), dict[str, str]()
        for stream in self.streams:
            found = self._read_stream(
                stream, made, own, folder, notes, f" of {part}" if part not in ("", "train") else ""
            )
            wanted = {*self.state.get("names", ()), *self.state.get("wishes", ()), *self.state.get("truth", ())}
            if wanted and not wanted & found.keys():
                notes.append(f"No tokens use the stream {stream}: {', '.join(found)}.")
            for name in found.keys() - own:
                if name in owner and name in self.state.get("names", ()):
                    message = f"the streams {owner[name]} and {stream} both have the column `{name}`"
                    raise UserError(message, hint="Remove one of the streams.", key=f"data.streams.{stream}")
                if name not in owner:
                    made[name], owner[name] = found[name], stream
        return made

    def read_table(self, path: Path) -> dict[str, Array | Lists]:
        """Columns of a table of objects with one value per object."""
        if isinstance(path, MemoryFile):
            return dict(path.columns)
        file = open_file(path, Layout(), form_of(path))
        flat = [name for name, kind in file.kinds.items() if not kind.listed]
        table = file.read(flat, 0, file.rows)
        return {
            n: as_text(c).astype(str) if isinstance(c, np.ndarray) and c.dtype.kind in "OS" else c
            for n, c in table.items()
        }

    def _read_stream(
        self, stream: str, table: Table, own: Collection[str], folders: Sequence[Path], notes: list[str], whose: str
    ) -> Table:
        """Columns of a stream for each row of the table of objects.

        own      names of the columns of the table
        folders  folder of the table of each row
        whose    part of the data, for notes; for example " of valid"
        """
        reader, where = self.reader(stream), f"data.streams.{stream}.column"
        column = str(self.streams[stream].get("column", "id"))
        gap = self.state.get("learned", {}).get(stream)
        if gap is None or column in own:
            one_of(where, column, sorted(own), key=where)
            keys = as_names(table[column], column, where)
        else:
            keys = np.full(rows_of(table), "")
        given = keys != ""
        self._check_unique(keys[given], column, where)
        if not given.any():
            if gap is None:
                hint = f"Remove data.streams.{stream} and its tokens, or fill the column."
                message = f"no object has an entry in column `{column}` for the stream {stream}"
                raise UserError(message, hint=hint, key=where)
            notes.append(f"No object{whose} has an entry in column `{column}`: the stream {stream} is empty.")
            return _gaps(gap, len(keys))
        if getattr(reader, "files", None):
            rows, found = self._by_id(reader, stream, keys, notes)
        else:
            files = [folder / key for folder, key in zip(folders, keys.tolist())]
            rows, found = self._by_file(reader, stream, files, given, notes)
        if lacking := int((rows < 0).sum()):
            notes.append(f"{lacking:,} of {len(rows):,} objects{whose} have no {stream}.")
        if gap is None and "learned" in self.state:
            self.state["learned"][stream] = _describe_gap(reader.with_gaps(found, np.array([-1])))
        return reader.with_gaps(found, rows) if lacking else select(found, rows)

    def _check_unique(self, keys: Array, column: str, where: str) -> None:
        values, counts = np.unique(keys, return_counts=True)
        if len(values) < len(keys) and self.split.by != column:
            message = (
                f"`{column}` has {values[counts.argmax()]!r} in {counts.max():,} rows, but its entries must be unique"
            )
            hint = f"Remove the duplicates, or keep them in one part: --data.split.by {column}"
            raise UserError(message, hint=hint, key=where)

    def _by_file(
        self, reader: Data, stream: str, files: Sequence[Path], given: Array, notes: list[str]
    ) -> tuple[Array, Table]:
        """Read a stream with a file per object; return rows (-1: no sample) and samples."""
        wanted = list(dict.fromkeys(path for path, there in zip(files, given) if there))
        if lost := [path for path in wanted if not path.exists()]:
            message = f"{len(lost):,} of {len(wanted):,} files of the stream {stream} do not exist: {lost[0]}"
            hint = "File names are relative to the folder of the table; leave the cell empty if there is no file."
            raise UserError(message, hint=hint, key=f"data.streams.{stream}.column", file=lost[0])
        found = _read_file(reader, wanted, stream, notes)
        if rows_of(found) != len(wanted):
            wanted = self._with_one_sample(reader, wanted, stream, notes)
        order = found.get("file")
        listed = [Path(one) for one in order.tolist()] if isinstance(order, np.ndarray) else wanted
        place = {path: row for row, path in enumerate(listed)}
        return np.array([place.get(path, -1) if there else -1 for path, there in zip(files, given)], np.int64), found

    def _with_one_sample(self, reader: Data, files: Sequence[Path], stream: str, notes: list[str]) -> list[Path]:
        """Files with a sample, without the files that have no valid value.

        A file with several samples is an error.
        """
        counts = {path: _count_samples(reader, path) for path in files}
        if large := [path for path, count in counts.items() if count > 1]:
            message = f"each file of the stream {stream} must have one sample, but {large[0]} has {counts[large[0]]:,}"
            hint = f"Put a file with many samples into data.streams.{stream}.files, with a column of ids."
            raise UserError(message, hint=hint, key=f"data.streams.{stream}", file=large[0])
        empty = [path for path, count in counts.items() if not count]
        words = list_names([str(path) for path in empty], 3)
        notes.append(f"{len(empty):,} of {len(files):,} files of the stream {stream} have no valid values: {words}.")
        return [path for path, count in counts.items() if count]

    def _by_id(self, reader: Data, stream: str, keys: Array, notes: list[str]) -> tuple[Array, Table]:
        """Read a stream; return the row of each object id in `keys`, and the samples.

        The row is -1 if the stream has no sample with the id.
        """
        where, files = f"data.streams.{stream}.files", reader.files  # type: ignore[attr-defined]
        found = read_whole(reader.read(files), notes)
        if "id" not in found:
            message = f"the samples of the stream {stream} have no column `id`; they have {', '.join(found)}"
            raise UserError(message, key=f"data.streams.{stream}")
        ids = as_names(found["id"], "id", where)
        values, counts = np.unique(ids, return_counts=True)
        if len(values) < len(ids):
            again = list_names(values[counts > 1].tolist(), 4)
            raise UserError(f"the stream {stream} has several samples with the same id: {again}", key=where)
        place = {one: row for row, one in enumerate(ids.tolist())}
        rows = np.array([place.get(key, -1) for key in keys.tolist()], np.int64)
        if (rows < 0).all():
            message = (
                f"no object has an id of the stream {stream}: {keys[0]!r} is not one of {list_names(ids.tolist(), 2)}"
            )
            raise UserError(message, key=f"data.streams.{stream}.column")
        if unused := len(ids) - len(np.unique(rows[rows >= 0])):
            notes.append(f"{unused:,} of {len(ids):,} samples of the stream {stream} belong to no object: left out.")
        return rows, found

    def _stream_files(self, tables: Sequence[Path]) -> tuple[list[Path], list[Path]]:
        """Files of the streams: files with many objects, and files of one object each."""
        few, many = list[Path](), list[Path]()
        for stream, keys in self.streams.items():
            if keys.get("files"):
                few += find_files(_listed(keys["files"]), f"files of the stream {stream}")
                continue
            for path in tables:
                folder = Path() if isinstance(path, MemoryFile) else path.parent
                column = as_names(self.read_table(path)[str(keys.get("column", "id"))], "", "")
                many += [folder / one for one in column.tolist() if one]
        return few, many


def _read_file(reader: Data, files: Sequence[Path], stream: str, notes: list[str]) -> Table:
    """All samples of files with one object each."""
    try:
        return read_whole(reader.read(files), notes)
    except UserError as error:
        if error.file is None or len(files) < 2:
            raise
        hint = "Replace the file, or leave the cell empty: the object then has no " + f"{stream}."
        raise error.with_fields(hint=hint, key=f"data.streams.{stream}.column") from error


def _count_samples(reader: Data, path: Path) -> int:
    try:
        return rows_of(read_whole(reader.read([path])))
    except UserError:  # the files can be read together: no sample of this file is left
        return 0


def _listed(files: Any) -> list[str]:
    return [files] if isinstance(files, str) else list(files)


def as_names(column: Array | Lists, name: str, where: str) -> Array:
    """Names or ids as strings; "" if missing."""
    if isinstance(column, Lists) or column.ndim != 1:
        raise UserError(f"column `{name}` must have one name or id for each object", key=where)
    if column.dtype.kind == "f":
        if not (column[np.isfinite(column)] == np.round(column[np.isfinite(column)])).all():
            raise UserError(f"column `{name}` must have names or ids, not real numbers", key=where)
        return np.array([f"{value:.0f}" if np.isfinite(value) else "" for value in column], str)
    return np.char.strip(as_text(column).astype(str) if column.dtype.kind in "OS" else column.astype(str))


def _describe_gap(table: Table) -> dict[str, Any]:
    """Empty sample of a stream, as JSON: entry types of lists, or plain values."""
    return {
        name: {"list": column.values.dtype.str, "shape": list(column.values.shape[1:])}
        if isinstance(column, Lists)
        else {"value": column.tolist()[0], "dtype": column.dtype.str}
        for name, column in table.items()
        if isinstance(column, Lists) or column.dtype.kind != "O"
    }


def _gaps(gap: dict[str, Any], count: int) -> Table:
    """Table of `count` empty samples, as described by `_describe_gap`."""
    made: dict[str, Array | Lists] = {}
    for name, one in gap.items():
        if "list" in one:
            made[name] = Lists(np.zeros((0, *one["shape"]), one["list"]), np.zeros(count, np.int64))
        else:
            value = np.array(one["value"], one["dtype"])
            made[name] = np.broadcast_to(value, (count, *value.shape)).copy()
    return made


def read_whole(source: Source, notes: list[str] | None = None) -> Table:
    """All samples of a source, in order; its notes are added to `notes`."""
    if notes is not None:
        notes += getattr(source, "notes", ())
    return concatenate(list(pieces(source)))
