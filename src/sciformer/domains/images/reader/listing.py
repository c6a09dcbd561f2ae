"""Lists of image files from folders of classes or parts, tables and globs."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....data.columns import Array, Lists
from ....data.fileset import split_tag
from ....data.readers.part_names import group_by_part, name_words, part_of
from ....data.readers.text_parts import read_lines
from ....data.source import expand_glob, find_files
from ....errors import UserError, one_of
from ....files.formats.base import Layout, as_text, open_file
from ....files.formats.delimited import DELIMITED_SUFFIXES, bare_suffix, measured, read_rows
from ....files.formats.parquet import PARQUET
from ....files.in_memory import MemoryFile
from .arrays import ARRAY_SUFFIXES
from .decode import PICTURE_SUFFIXES

FILE_KIND = "images"
PATH_NAMES = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "img", "name")
LABEL_NAMES = ("label", "labels", "class", "classes", "category", "target", "targets", "y", "type", "morphology")
CAPTION_SUFFIX = ".txt"  # of a text file beside a picture, with the same name
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
TABLE_SUFFIXES = (*DELIMITED_SUFFIXES, ".parquet", ".pq")


class ImageFile(NamedTuple):
    """Path of an image file, with part and class (`tag`) from folder or name."""

    path: Path
    part: str = ""
    tag: str = ""


def list_image_files(names: Sequence[str | Path], notes: list[str]) -> list[ImageFile]:
    """List image files, each file once.

    names   file names, globs or folders; CLASS:NAME sets the class
    notes   list that receives notes on skipped files
    """
    found: dict[Path, ImageFile] = {}
    if not names:
        find_files([], FILE_KIND)
    for tag, name in map(split_tag, names):
        if isinstance(name, MemoryFile):
            found[name] = ImageFile(name)
            continue
        folder = Path(name).expanduser()
        for entry in _list_folder(folder, notes) if folder.is_dir() else _match_files(name, notes):
            entry = entry._replace(tag=tag or entry.tag)
            if found.setdefault(entry.path, entry).tag != entry.tag:
                tags = f"{found[entry.path].tag or 'none'} and {entry.tag or 'none'}"
                raise UserError(f"{entry.path} is listed with two classes: {tags}", file=entry.path)
    return list(found.values())


def _match_files(name: str, notes: list[str]) -> list[ImageFile]:
    """List the files of a path or glob; matched folders are parts or classes."""
    paths = expand_glob(Path(name).expanduser())
    if paths and all(path.is_dir() for path in paths):
        if parts := _folders_of_parts(paths):
            return [e._replace(part=parts[path]) for path in parts for e in _list_folder(path, notes)]
        return [ImageFile(e.path, e.part, e.tag or path.name) for path in paths for e in _list_folder(path, notes)]
    return [ImageFile(path, _part_of_idx_file(path)) for path in find_files([name], FILE_KIND)]


def _part_of_idx_file(path: Path) -> str:
    return part_of(path.name) if "ubyte" in name_words(path.name) else ""


def _list_folder(folder: Path, notes: list[str]) -> list[ImageFile]:
    """List the images in a folder; its subfolders are parts or classes."""
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))
    folders = [path for path in inside if path.is_dir()]
    files = [path for path in inside if path.is_file() and is_image(path)]
    below = {path: found for path in folders if (found := _images_below(path))}
    if not files and (parts := _folders_of_parts(list(below))):
        notes += [f"{path} is the part `{part}`." for path, part in parts.items() if not part_of(path.name)]
        return [e._replace(part=part) for path, part in parts.items() for e in _list_folder(path, notes)]
    if tables := [path for path in inside if path.is_file() and is_table(path)]:
        notes.append(f"{tables[0]} was not read; to read a table of images, name it: --data.files {tables[0]}")
    if files and below:
        hint = f"Choose the images, {folder}/*.png, or the folders of classes, {folder}/*/"
        others = ", ".join(path.name for path in list(below)[:4])
        message = f"{folder} has {len(files):,} images and also folders with images: {others}"
        raise UserError(message, hint=hint, file=folder)
    if files:
        return [ImageFile(path, _part_of_idx_file(path)) for path in files]
    if not below:
        counts = Counter(bare_suffix(path) or "none" for path in inside if path.is_file())
        there = ", ".join(f"{count:,} files {end}" for end, count in counts.most_common(4)) or "no files"
        kinds = ", ".join((*PICTURE_SUFFIXES, *ARRAY_SUFFIXES))
        raise UserError(f"folder {folder} has no images ({kinds}): it has {there}", file=folder)
    notes += [f"{path} has no images, so it is not a class." for path in folders if path not in below]
    if len(below) == 1:
        (only,) = below
        notes.append(f"{folder} has images in only one folder, {only.name}, so there are no classes.")
        return _list_folder(only, notes)
    return [ImageFile(path, "", top.name) for top, found in below.items() for path in found]


def _folders_of_parts(folders: Sequence[Path]) -> dict[Path, str]:
    """Part (train, valid or test) of each folder; {} if the folders are classes."""
    told = {part_of(path.name) for path in folders} - {""}
    if "train" not in told or len(told) == 1:
        return {}
    grouped = group_by_part([str(path) for path in folders])
    return {path: part for path in folders for part, names in grouped.items() if str(path) in names}


def _images_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        found += [Path(top, name) for name in sorted(names) if not name.startswith(".") and is_image(Path(name))]
    return found


def captions_beside(path: Path) -> list[str]:
    """Captions from the text file beside a picture, one per line.

    For example, `photo.txt` belongs to `photo.png`.
    """
    file = path.with_suffix(CAPTION_SUFFIX)
    return [line.strip() for line in read_lines(file) if line.strip()] if file.is_file() else []


# File types by name


def is_table(path: Path) -> bool:
    """Whether a file name or a table in memory is a table of image files.

    A file name must have the suffix of a table; a table in memory must list names of image files.
    """
    if isinstance(path, MemoryFile):
        return not any(has_pixels(column) for column in path.columns.values()) and bool(_path_column(_flat(path)))
    return bare_suffix(path) in TABLE_SUFFIXES


def is_picture(path: Path) -> bool:
    """Whether the file name has the suffix of a picture format of Pillow."""
    return path.suffix.lower() in PICTURE_SUFFIXES


def is_image(path: Path) -> bool:
    """Whether the file name has the suffix of a picture or array format."""
    return bare_suffix(path) in (*PICTURE_SUFFIXES, *ARRAY_SUFFIXES) or "-ubyte" in path.name


# Tables of image files: CSV, TSV, JSON lines, Parquet


def read_image_table(
    path: Path, image: str = "", label: str = "", texts: str = ""
) -> tuple[list[Path], dict[str, Array]]:
    """Read the paths and the other columns of a table of image files.

    image, label   columns of file names (relative to the table) and classes (default: a column with a usual name)
    texts          column whose JSON lists of texts make a row for each text (default: none)
    """
    columns = _table_columns(path)
    if image:
        one_of(f"data.image, a column of {path},", image, columns, key="data.image")
    name = image or _path_column(columns)
    if not name:
        listed = f"its columns of text and numbers are {', '.join(columns) or 'none'}"
        message = f"{path} has no column with file names of images, for example `path` or `file`; {listed}"
        hint = "Choose a column with --data.image NAME. Pictures inside a table cannot be read: save them as files."
        raise UserError(message, hint=hint, key="data.image", file=path)
    folder = Path() if isinstance(path, MemoryFile) else path.parent
    paths = [folder / str(one).strip() for one in columns.pop(name).tolist()]
    found = find_label_column(columns, label, f"a column of {path}")
    if found and found != "label":
        columns = {"label": columns.pop(found), **columns}
    columns.pop("file", None)
    if paths and not any(one.exists() for one in paths):
        message = f"none of the {len(paths):,} images in column `{name}` of {path} exists, for example {paths[0]}"
        hint = "File names are relative to the folder of the table."
        raise UserError(message, hint=hint, key="data.image", file=path)
    if texts in columns and bare_suffix(path) in JSON_SUFFIXES:
        lists = [_texts_in(str(cell)) for cell in columns[texts].tolist()]
        rows = np.repeat(np.arange(len(paths)), [len(some) for some in lists])
        columns = {name: column[rows] for name, column in columns.items()}
        columns[texts] = np.array([text for some in lists for text in some])
        paths = [paths[row] for row in rows.tolist()]
    return paths, columns


def _texts_in(cell: str) -> list[str]:
    """Texts of a JSON list; other cells are one text."""
    try:
        found = json.loads(cell) if cell.startswith("[") else cell
    except (ValueError, RecursionError):
        return [cell]
    if not isinstance(found, list) or not all(isinstance(text, str | None) for text in found):
        return [cell]
    return [text.strip() for text in found if text and text.strip()] or [""]


def find_label_column(columns: Collection[str], given: str, what: str) -> str:
    """Name of the class column: `given` or a usual name; else an empty string."""
    if given:
        one_of(f"data.label, {what},", given, columns, key="data.label")
        return given
    return next((name for word in LABEL_NAMES for name in columns if name.lower() == word), "")


def lists_images(path: Path) -> bool:
    """Whether a table lists image files, by column names and the first file."""
    try:
        columns = _table_columns(path)
    except UserError:
        return False
    name = _path_column(columns)
    first = path.parent / str(columns[name][0]).strip() if name else path
    return is_image(first) and first.exists()


def unreadable_tables(folder: Path) -> list[UserError]:
    """Errors of the tables in a folder that cannot be read."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            if path.is_file() and is_table(path):
                _table_columns(path)
        except UserError as error:
            found.append(error)
    return found


class ImageTable(NamedTuple):
    """Path of a table of images, and its columns."""

    path: Path
    columns: Collection[str]

    def __str__(self) -> str:
        return str(self.path)


def table_in_folder(folder: Path) -> ImageTable | None:
    """The only table of images in a folder; None if there is no table or several."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    tables = [path for path in inside if path.is_file() and is_table(path) and lists_images(path)]
    return ImageTable(tables[0], [*_table_columns(tables[0])]) if len(tables) == 1 else None


def _path_column(columns: Mapping[str, Array]) -> str:
    words = [name for name in columns if columns[name].dtype.kind in "UO"]
    return next((name for word in PATH_NAMES for name in words if name.lower() == word), "")


def has_pixels(column: Any) -> bool:
    """Whether a column of a table in memory has an array for each image."""
    if isinstance(column, Lists):
        return False
    return column.ndim > 1 or (column.dtype.kind == "O" and isinstance(column[0], np.ndarray))


def _flat(table: MemoryFile) -> dict[str, Array]:
    return {
        name: as_text(one).astype(str) if one.dtype.kind == "O" else one
        for name, one in table.columns.items()
        if isinstance(one, np.ndarray) and one.ndim == 1
    }


def _table_columns(path: Path) -> dict[str, Array]:
    if isinstance(path, MemoryFile):
        return _flat(path)
    if bare_suffix(path) in (".parquet", ".pq"):
        file = open_file(path, Layout(), PARQUET)
        flat = [name for name, kind in file.kinds.items() if not kind.listed]
        columns = file.read(flat, 0, file.rows)
        return {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
    grid = read_rows(path)
    rows, names = grid.rows, grid.names
    if names is None:
        names, rows = [cell.strip() for cell in rows[0]] if rows else [], rows[1:]
    if not rows:
        raise UserError(f"{path} has no rows below the line of column names", file=path)
    if double := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UserError(f"{path} has two columns named {double[0]!r}", hint="Rename one of them.", file=path)
    return {name: measured([row[place].strip() for row in rows]) for place, name in enumerate(names)}
