"""What names mean: pictures, folders of classes and parts, tables of pictures, files with arrays of images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....data.columns import Array
from ....data.fileset import split_tag
from ....data.source import find_files
from ....errors import UserError, one_of
from ....files.formats.delimited import DELIMITED_SUFFIXES, measured, read_rows
from ....files.packages import package
from .arrays import ARRAY_SUFFIXES, open_arrays
from .collection import (
    PART_NAMES,
    ImageFileSet,
    ImageSet,
    ReadOptions,
    find_image_arrays,
    find_label_column,
    is_picture,
    map_in_threads,
)
from .decode import PICTURE_SUFFIXES, ImageHeader, file_digest, read_header

FILE_KIND = "images"
ROWS_CHECKED_AT_ONCE = 1024  # images of an array that are read at a time, to see that they can be
MAX_LISTED_FILES = 10  # bad files that a message names
BadFiles = list[tuple[str, UserError]]


class ImageFile(NamedTuple):
    """A file, the part that its folder or its name tells, and its class."""

    path: Path
    part: str = ""
    tag: str = ""


class Listing(NamedTuple):
    """The files that were named, and notes on what was not taken."""

    entries: list[ImageFile]
    notes: list[str]


def list_image_files(names: Sequence[str | Path]) -> Listing:
    """The files that names, globs and folders mean, each once; a class may stand before a name: NAME:FILES."""
    found: dict[Path, ImageFile] = {}
    notes: list[str] = []
    if not names:
        find_files([], FILE_KIND)
    for tag, name in map(split_tag, names):
        folder = Path(name).expanduser()
        entries = _list_folder(folder, notes) if folder.is_dir() else _match_files(name, notes)
        for entry in entries:
            entry = entry._replace(tag=tag or entry.tag)
            if found.setdefault(entry.path, entry).tag != entry.tag:
                tags = f"{found[entry.path].tag or 'none'} and {entry.tag or 'none'}"
                raise UserError(f"{entry.path} has two classes: {tags}", file=entry.path)
    return Listing(list(found.values()), notes)


def _match_files(name: str, notes: list[str]) -> list[ImageFile]:
    """Files by a name or a glob; a glob may mean folders of classes too."""
    parts = [Path(name).expanduser()]
    if not parts[0].exists():
        anchor = parts[0].anchor
        glob = str(parts[0].relative_to(anchor)) if anchor else str(parts[0])
        parts = sorted(Path(anchor or ".").glob(glob))
    if parts and all(path.is_dir() for path in parts):
        return [ImageFile(e.path, e.part, e.tag or path.name) for path in parts for e in _list_folder(path, notes)]
    return [ImageFile(path, _part_of_idx_file(path)) for path in find_files([name], FILE_KIND)]


def _part_of_idx_file(path: Path) -> str:
    """The part of an idx file, by its name."""
    words = path.name.lower().replace(".", "-").split("-")
    return next((PART_NAMES[word] for word in words if word in PART_NAMES), "") if "ubyte" in words else ""


def _list_folder(folder: Path, notes: list[str]) -> list[ImageFile]:
    """The images of a folder: those in it; or those of the folders in it, which are parts, or classes."""
    inside = _visible_entries(folder)
    folders = [path for path in inside if path.is_dir()]
    files = [path for path in inside if path.is_file() and is_image(path)]
    parts = {path: PART_NAMES[path.name.lower()] for path in folders if path.name.lower() in PART_NAMES}
    if not files and "train" in parts.values() and len(set(parts.values())) == len(parts) > 1:
        return [e._replace(part=part) for path, part in parts.items() for e in _list_folder(path, notes)]
    below = {path: found for path in folders if (found := _images_below(path))}
    if tables := [path for path in inside if path.is_file() and is_table(path)]:
        notes.append(f"{tables[0]} was not read; a table of images is named itself: --data.files {tables[0]}")
    if files and below:
        advice = f"Name what you mean: {folder}/*.png, or the folders of classes: {folder}/*/"
        others = ", ".join(path.name for path in list(below)[:4])
        raise UserError(
            f"{folder} has {len(files):,} images in it and others in its folders {others}", hint=advice, file=folder
        )
    if files:
        return [ImageFile(path, _part_of_idx_file(path)) for path in files]
    notes += [
        f"{path} has no images: there is no class of that name." for path in folders if below and path not in below
    ]
    if len(below) == 1:
        (only,) = below
        notes.append(f"{folder} has images in one folder alone, {only.name}: that tells no classes.")
        return _list_folder(only, notes)
    if not below:
        counts = Counter(bare_suffix(path) or "none" for path in inside if path.is_file())
        there = ", ".join(f"{count:,} files {end}" for end, count in counts.most_common(4)) or "nothing"
        kinds = ", ".join((*PICTURE_SUFFIXES, *ARRAY_SUFFIXES))
        raise UserError(f"folder {folder} has no images ({kinds}): it has {there}", file=folder)
    return [ImageFile(path, "", top.name) for top, found in below.items() for path in found]


def _visible_entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))


def _images_below(folder: Path) -> list[Path]:
    """All images below a folder."""
    found: list[Path] = []
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        found += [Path(top, name) for name in sorted(names) if not name.startswith(".") and is_image(Path(name))]
    return found


# From files to sets of images


def gather_image_sets(entries: Sequence[ImageFile], rules: ReadOptions, bad: BadFiles) -> list[tuple[str, ImageSet]]:
    """Sets of images in the order of the files, each with its part where that is told; files that cannot be read are
    put among the bad."""
    arrays = sum(not is_table(entry.path) and not is_picture(entry.path) for entry in entries)
    rules = replace(rules, alone=arrays > 1)
    made: list[tuple[str, ImageSet]] = []
    run: list[ImageFile] = []  # pictures that follow each other
    for entry in entries:
        found: list[tuple[str, ImageSet]] = []
        if is_table(entry.path):
            found = [("", _table_image_set(entry.path, rules, bad))]
        elif not is_picture(entry.path):
            if _is_label_file(entry.path):
                continue
            found = _try_file(entry.path, lambda path: _image_array_sets(path, rules), bad) or []
            if not found and bad and bad[-1][0] == str(entry.path):
                continue
        if run and (found or run[-1].part != entry.part):
            made.append(_picture_set(run, rules, bad))
            run = []
        for part, one in found:
            if entry.tag:
                one.columns["label"] = np.full(len(one), entry.tag)
            made.append((part or entry.part, one))
        if not found:
            run.append(entry)
    return [*made, _picture_set(run, rules, bad)] if run else made


def _image_array_sets(path: Path, rules: ReadOptions) -> list[tuple[str, ImageSet]]:
    """The images of a file with arrays; none where it is one image, to be read as pictures are."""
    made: list[tuple[str, ImageSet]] = []
    for part, cube in find_image_arrays(open_arrays(path), rules):
        if cube.single:
            return []
        cube.origin += _attach_idx_labels(path, cube)
        for start in range(0, len(cube) if rules.deep else 0, ROWS_CHECKED_AT_ONCE):
            cube.file.get(cube.array, np.arange(start, min(start + ROWS_CHECKED_AT_ONCE, len(cube))))
        made.append((part, cube))
    return made


def _picture_set(entries: Sequence[ImageFile], rules: ReadOptions, bad: BadFiles) -> tuple[str, ImageSet]:
    """Pictures of one part."""
    columns: dict[str, Array] = {}
    if any(entry.tag for entry in entries):
        columns["label"] = np.array([entry.tag for entry in entries])
        bare = next((entry.path for entry in entries if not entry.tag), None)
        if bare is not None:
            raise UserError(
                f"{bare} has no class, but other images have a class by their folder or before their name", file=bare
            )
    first = entries[0]
    return first.part, _image_file_set(f"{first.path}", [entry.path for entry in entries], columns, rules, bad)


def _try_file(path: Path, make: Callable[[Path], Any], bad: BadFiles) -> Any:
    """What is made of a file; None, and an entry among the bad, where it cannot be read."""
    try:
        return make(path)
    except UserError as error:
        bad.append((str(path), error))
    except OSError as error:
        bad.append((str(path), UserError(f"{path} cannot be read: {error.strerror or error}", file=path)))
    return None


def _image_file_set(
    name: str, paths: Sequence[Path], columns: dict[str, Array], rules: ReadOptions, bad: BadFiles
) -> ImageFileSet:
    """Files with an image each, looked at; bad ones are left out."""
    troubles: list[BadFiles] = [[] for _ in paths]
    cards: dict[str, list[Any]] = {}

    def one(number: int) -> ImageHeader | None:
        path, trouble = paths[number], troubles[number]
        if is_picture(path):
            found: ImageHeader | None = _try_file(
                path, lambda path: read_header(path, rules.pixels, rules.deep), trouble
            )
            return found
        return _try_file(path, lambda path: _single_image_header(path, rules, cards), trouble)

    looks = list(map_in_threads(one, range(len(paths)), all(map(is_picture, paths))))
    for trouble in troubles:
        bad += trouble
    kept = np.array([number for number, look in enumerate(looks) if look is not None], np.int64)
    columns = {name: column[kept] for name, column in columns.items()}
    columns |= {key: np.array(some) for key, some in cards.items() if key not in columns and len(some) == len(kept)}
    return ImageFileSet(
        name, [paths[row] for row in kept], [look for look in looks if look is not None], columns, rules
    )


def _single_image_header(path: Path, rules: ReadOptions, cards: dict[str, list[Any]]) -> ImageHeader:
    """The one image of a file of arrays; what its header says of it goes to the cards."""
    ((_, cube),) = find_image_arrays(open_arrays(path), replace(rules, alone=True))
    if not cube.single:
        raise UserError(f"{path} must have a single image, as the files beside it have, not {len(cube):,}", file=path)
    if rules.deep:
        cube.file.get(cube.array)
    for name, column in cube.columns.items():
        cards.setdefault(name, []).append(column[0])
    height, width, channels = (int(side) for side in cube.shapes[0])
    with path.open("rb") as file:
        size = path.stat().st_size
        return ImageHeader(height, width, channels, cube.dtype.str, size, file_digest(file, size))


def _is_label_file(path: Path) -> bool:
    """Whether a file has the labels of another: of idx files, that with one axis."""
    return "labels" in path.name and "ubyte" in path.name


def _attach_idx_labels(path: Path, cube: ImageSet) -> tuple[Path, ...]:
    """Give the images of an idx file their labels, from the file beside it that is named alike: which is it?"""
    if "ubyte" not in path.name:
        return ()
    named = path.name.replace("images", "labels").replace("idx3", "idx1")
    for name in (named, f"{named}.gz", named.removesuffix(".gz")):
        if name != path.name and (other := path.with_name(name)).exists():
            labels = open_arrays(other).get("array")
            if labels.shape != (len(cube),):
                raise UserError(
                    f"{other} must have a label for each of the {len(cube):,} images of {path.name}, not the shape "
                    f"{labels.shape}",
                    file=other,
                )
            cube.columns["label"] = labels.astype(np.int64)
            return (other,)
    return ()


# Tables


def _table_image_set(path: Path, rules: ReadOptions, bad: BadFiles) -> ImageFileSet:
    """The pictures that a table names, relative to its folder, with its other columns."""
    columns = read_table_columns(path)
    if rules.image:
        one_of(f"data.image, a column of {path},", rules.image, columns, key="data.image")
    name = rules.image or find_path_column(columns)
    if not name:
        raise UserError(
            f"{path} has no column with the names of images, such as `path` or `file`: it has "
            f"{', '.join(columns) or 'no columns with words or numbers'}",
            hint="Say which: --data.image NAME. Pictures inside a table are not read: write them to files.",
            key="data.image",
            file=path,
        )
    paths = [path.parent / str(one).strip() for one in columns.pop(name).tolist()]
    label = find_label_column(columns, rules, f"a column of {path}")
    if label and label != "label":
        columns = {"label": columns.pop(label), **columns}
    columns.pop("file", None)
    if paths and not any(one.exists() for one in paths):
        raise UserError(
            f"the {len(paths):,} images that {path} names in `{name}` do not exist, for example {paths[0]}",
            hint="Names of images are relative to the folder of the table.",
            key="data.image",
            file=path,
        )
    made = _image_file_set(str(path), paths, columns, replace(rules, image="", label=""), bad)
    made.origin = (path,)
    return made


def bad_files_error(bad: BadFiles, total: int, training: bool = True) -> UserError:
    """The error that names the files which cannot be read; of one, its own."""
    advice = ("Or go on without: --data.bad_files skip" if training else "Or ask without it.") if total > 1 else ""
    if len(bad) == 1:
        ((_, error),) = bad
        return error.with_fields(hint=f"{error.hint} {advice}".strip())
    shown = "".join(f"\n  {bad_file_reason(name, error)}" for name, error in bad[:MAX_LISTED_FILES])
    rest = f"\n  and {len(bad) - MAX_LISTED_FILES:,} more" if len(bad) > MAX_LISTED_FILES else ""
    count = f"{len(bad):,} of {total:,}" if len(bad) < total else f"{total:,}"
    way = "Mend or remove them, or go on without: --data.bad_files skip" if training else "Ask without them."
    return UserError(f"{count} images cannot be read:{shown}{rest}", hint=way)


def bad_file_reason(name: str, error: UserError) -> str:
    """The name of a file and why it cannot be read, without the name again."""
    return f"{name}: {error.message.removeprefix(f'{name} ')}"


# Files of images by their names, and tables that name them: CSV, TSV, JSON lines, Parquet


PATH_NAMES = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "img", "name")
TABLE_SUFFIXES = (*DELIMITED_SUFFIXES, ".parquet", ".pq")


def bare_suffix(path: Path) -> str:
    """The end of a name, without .gz."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def is_table(path: Path) -> bool:
    """Whether a file is a table, by its name."""
    return bare_suffix(path) in TABLE_SUFFIXES


def is_image(path: Path) -> bool:
    """Whether a file has images, by its name."""
    return bare_suffix(path) in (*PICTURE_SUFFIXES, *ARRAY_SUFFIXES) or "-ubyte" in path.name


def lists_images(path: Path) -> bool:
    """Whether a table has a column with names of images, of which the first is there."""
    try:
        columns = read_table_columns(path)
    except UserError:
        return False
    name = find_path_column(columns)
    first = path.parent / str(columns[name][0]).strip() if name else path
    return is_image(first) and first.exists()


def find_path_column(columns: Mapping[str, Array]) -> str:
    """The column with the names of images, where one has a usual name."""
    usual = [
        name for word in PATH_NAMES for name in columns if name.lower() == word and columns[name].dtype.kind in "UO"
    ]
    return next(iter(usual), "")


def read_table_columns(path: Path) -> dict[str, Array]:
    """The columns of a table, with numbers or words."""
    return _parquet_columns(path) if bare_suffix(path) in (".parquet", ".pq") else _text_table_columns(path)


def _text_table_columns(path: Path) -> dict[str, Array]:
    grid = read_rows(path)
    rows, names = grid.rows, grid.names
    if names is None:
        names, rows = [cell.strip() for cell in rows[0]] if rows else [], rows[1:]
    if not rows:
        raise UserError(f"{path} must have a line with the names of columns, and other lines with images", file=path)
    if double := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UserError(f"{path} has two columns with the name {double[0]!r}", file=path)
    return {name: measured([row[place].strip() for row in rows]) for place, name in enumerate(names)}


def _parquet_columns(path: Path) -> dict[str, Array]:
    def load() -> Any:
        import pyarrow.parquet  # type: ignore[import-untyped]

        return pyarrow.parquet

    table = package(load, "pyarrow", "Parquet", "astro").read_table(path)
    made: dict[str, Array] = {}
    for name in table.column_names:
        column = table.column(name).to_numpy()
        if column.dtype.kind == "O":
            values = column.tolist()
            if all(value is None or isinstance(value, str) for value in values):
                made[name] = np.array(["" if value is None else value for value in values])
        else:
            made[name] = column
    return made
