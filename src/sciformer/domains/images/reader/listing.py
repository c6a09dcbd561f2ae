"""What names mean: pictures, folders of classes and parts, tables of pictures, files with arrays of images."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....data.columns import Array
from ....data.fileset import split_tag
from ....data.source import find_files
from ....errors import UserError, one_of
from ....files.formats.base import Layout, open_file
from ....files.formats.delimited import DELIMITED_SUFFIXES, measured, read_rows
from ....files.formats.parquet import PARQUET
from .arrays import ARRAY_SUFFIXES
from .decode import PICTURE_SUFFIXES

FILE_KIND = "images"
PART_NAMES = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("valid", "val", "dev", "validation"), "valid"),
    **dict.fromkeys(("test", "tst", "testing", "t10k"), "test"),
}
PATH_NAMES = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "img", "name")
LABEL_NAMES = ("label", "labels", "class", "classes", "category", "target", "targets", "y", "type", "morphology")
TABLE_SUFFIXES = (*DELIMITED_SUFFIXES, ".parquet", ".pq")


class ImageFile(NamedTuple):
    """A file, the part that its folder or its name tells, and its class."""

    path: Path
    part: str = ""
    tag: str = ""


def list_image_files(names: Sequence[str | Path], notes: list[str]) -> list[ImageFile]:
    """The files that names, globs and folders mean, each once; a class may stand before a name: NAME:FILES.

    notes   takes sentences on what was not taken
    """
    found: dict[Path, ImageFile] = {}
    if not names:
        find_files([], FILE_KIND)
    for tag, name in map(split_tag, names):
        folder = Path(name).expanduser()
        for entry in _list_folder(folder, notes) if folder.is_dir() else _match_files(name, notes):
            entry = entry._replace(tag=tag or entry.tag)
            if found.setdefault(entry.path, entry).tag != entry.tag:
                tags = f"{found[entry.path].tag or 'none'} and {entry.tag or 'none'}"
                raise UserError(f"{entry.path} has two classes: {tags}", file=entry.path)
    return list(found.values())


def _match_files(name: str, notes: list[str]) -> list[ImageFile]:
    """Files by a name or a glob; a glob may mean folders of classes too."""
    path = Path(name).expanduser()
    glob = str(path.relative_to(path.anchor) if path.anchor else path)
    paths = [path] if path.exists() else sorted(Path(path.anchor or ".").glob(glob))
    if paths and all(path.is_dir() for path in paths):
        return [ImageFile(e.path, e.part, e.tag or path.name) for path in paths for e in _list_folder(path, notes)]
    return [ImageFile(path, _part_of_idx_file(path)) for path in find_files([name], FILE_KIND)]


def name_words(name: str) -> list[str]:
    """The words of the name of a file or an array, in small letters."""
    return re.split(r"[./_-]", name.lower())


def part_of_name(name: str) -> str:
    """The part that a name tells (x_train, x_test), or nothing."""
    return next((PART_NAMES[word] for word in name_words(name) if word in PART_NAMES), "")


def _part_of_idx_file(path: Path) -> str:
    return part_of_name(path.name) if "ubyte" in name_words(path.name) else ""


def _list_folder(folder: Path, notes: list[str]) -> list[ImageFile]:
    """The images of a folder: those in it; or those of the folders in it, which are parts, or classes."""
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))
    folders = [path for path in inside if path.is_dir()]
    files = [path for path in inside if path.is_file() and is_image(path)]
    parts = {path: PART_NAMES[path.name.lower()] for path in folders if path.name.lower() in PART_NAMES}
    if not files and "train" in parts.values() and len(set(parts.values())) == len(parts) > 1:
        return [e._replace(part=part) for path, part in parts.items() for e in _list_folder(path, notes)]
    below = {path: found for path in folders if (found := _images_below(path))}
    if tables := [path for path in inside if path.is_file() and is_table(path)]:
        notes.append(f"{tables[0]} was not read; a table of images is named itself: --data.files {tables[0]}")
    if files and below:
        hint = f"Name what you mean: {folder}/*.png, or the folders of classes: {folder}/*/"
        others = ", ".join(path.name for path in list(below)[:4])
        message = f"{folder} has {len(files):,} images in it and others in its folders {others}"
        raise UserError(message, hint=hint, file=folder)
    if files:
        return [ImageFile(path, _part_of_idx_file(path)) for path in files]
    if not below:
        counts = Counter(_bare_suffix(path) or "none" for path in inside if path.is_file())
        there = ", ".join(f"{count:,} files {end}" for end, count in counts.most_common(4)) or "nothing"
        kinds = ", ".join((*PICTURE_SUFFIXES, *ARRAY_SUFFIXES))
        raise UserError(f"folder {folder} has no images ({kinds}): it has {there}", file=folder)
    notes += [f"{path} has no images: there is no class of that name." for path in folders if path not in below]
    if len(below) == 1:
        (only,) = below
        notes.append(f"{folder} has images in one folder alone, {only.name}: that tells no classes.")
        return _list_folder(only, notes)
    return [ImageFile(path, "", top.name) for top, found in below.items() for path in found]


def _images_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        found += [Path(top, name) for name in sorted(names) if not name.startswith(".") and is_image(Path(name))]
    return found


# Files by their names


def _bare_suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def is_table(path: Path) -> bool:
    """Whether a file is a table, by its name."""
    return _bare_suffix(path) in TABLE_SUFFIXES


def is_picture(path: Path) -> bool:
    """Whether a file is a picture for Pillow, by its name."""
    return path.suffix.lower() in PICTURE_SUFFIXES


def is_image(path: Path) -> bool:
    """Whether a file has images, by its name."""
    return _bare_suffix(path) in (*PICTURE_SUFFIXES, *ARRAY_SUFFIXES) or "-ubyte" in path.name


# Tables that name images: CSV, TSV, JSON lines, Parquet


def read_image_table(path: Path, image: str = "", label: str = "") -> tuple[list[Path], dict[str, Array]]:
    """The files that a table names, relative to its folder, and its other columns.

    image, label   columns of files and classes; found by a usual name unless given
    """
    columns = _table_columns(path)
    if image:
        one_of(f"data.image, a column of {path},", image, columns, key="data.image")
    name = image or _path_column(columns)
    if not name:
        raise UserError(
            f"{path} has no column with the names of images, such as `path` or `file`: it has "
            f"{', '.join(columns) or 'no columns with words or numbers'}",
            hint="Say which: --data.image NAME. Pictures inside a table are not read: write them to files.",
            key="data.image",
            file=path,
        )
    paths = [path.parent / str(one).strip() for one in columns.pop(name).tolist()]
    found = find_label_column(columns, label, f"a column of {path}")
    if found and found != "label":
        columns = {"label": columns.pop(found), **columns}
    columns.pop("file", None)
    if paths and not any(one.exists() for one in paths):
        message = f"the {len(paths):,} images that {path} names in `{name}` do not exist, for example {paths[0]}"
        hint = "Names of images are relative to the folder of the table."
        raise UserError(message, hint=hint, key="data.image", file=path)
    return paths, columns


def find_label_column(columns: Collection[str], given: str, what: str) -> str:
    """The column that has the class: the one given, or one with a usual name; empty where there is none."""
    if given:
        one_of(f"data.label, {what},", given, columns, key="data.label")
        return given
    return next((name for word in LABEL_NAMES for name in columns if name.lower() == word), "")


def lists_images(path: Path) -> bool:
    """Whether a table has a column with names of images, of which the first is there."""
    try:
        columns = _table_columns(path)
    except UserError:
        return False
    name = _path_column(columns)
    first = path.parent / str(columns[name][0]).strip() if name else path
    return is_image(first) and first.exists()


def _path_column(columns: Mapping[str, Array]) -> str:
    words = [name for name in columns if columns[name].dtype.kind in "UO"]
    return next((name for word in PATH_NAMES for name in words if name.lower() == word), "")


def _table_columns(path: Path) -> dict[str, Array]:
    if _bare_suffix(path) in (".parquet", ".pq"):
        file = open_file(path, Layout(), PARQUET)
        flat = [name for name, kind in file.kinds.items() if not kind.listed]
        columns = file.read(flat, 0, file.rows)
        return {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
    grid = read_rows(path)
    rows, names = grid.rows, grid.names
    if names is None:
        names, rows = [cell.strip() for cell in rows[0]] if rows else [], rows[1:]
    if not rows:
        raise UserError(f"{path} must have a line with the names of columns, and other lines with images", file=path)
    if double := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UserError(f"{path} has two columns with the name {double[0]!r}", file=path)
    return {name: measured([row[place].strip() for row in rows]) for place, name in enumerate(names)}
