"""Recipes for the user's own files, with a reason for every guess.

    path = new("text", ["letters.txt"])    writes letters.yaml

The files are read by the same readers as in training, so unreadable files are refused at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from ..data.fileset import split_tag
from ..data.readers.part_names import part_of, parts_of
from ..data.source import GLOB_CHARACTERS, expand_glob, find_files
from ..errors import UserError, one_of
from .given import Given
from .guess import Guess, schedule
from .page import check_new_recipe
from .registry import find, names
from .yaml import parse_scalar

NO_CLASS = re.compile(r"[:\\*?\[\]]")  # characters that cannot be in a class tag


def new(
    kind: str,
    files: Sequence[str | Path] = (),
    out: str | Path | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    log: Callable[[str], Any] | None = None,
    where: str = "in changes",
) -> Path:
    """Write a commented recipe for files of a kind; return its path.

    kind        kind of the files: text, images, ...; or the first file, if its name shows the kind
    out         .yaml file to write (default: named after the first file, in the current folder)
    changes     recipe keys with their values, {"data.time": "HJD"}; the other keys are guessed to fit them
    overwrite   replace an existing recipe
    log         function called with each finding about the files
    where       origin of the changes in error messages
    """
    keys = Given(changes, where)
    known = names("new")
    if kind not in known:
        for name in known:
            if find("new", name).recognises(kind):
                kind, files = name, [kind, *files]
                break
    if kind not in known and Path(kind).expanduser().exists():
        way = f"Run `sciformer new KIND {kind}`, where KIND is one of {', '.join(known)}."
        raise UserError(f"the kind of the files is missing before '{kind}'", hint=way, file=kind)
    one_of("the kind of the files", kind, known)
    guess: Guess = find("new", kind)
    files = files or list(chain(*keys.files().values()))
    if not files:
        raise UserError("the file names are missing", hint=f"Run `sciformer new {kind} FILE ...`.")
    expanded = _expand_folders([str(file) for file in files]) if guess.tagged else [str(file) for file in files]
    given = [one for name in expanded for one in _expand_glob(name)]
    found = (guess.find or find_files)([split_tag(name)[1] if guess.tagged else name for name in given])
    path = Path(out).expanduser() if out is not None else Path(f"{_recipe_name(files, found)}.yaml")
    check_new_recipe(path, overwrite)
    page = guess.page(given, found, keys)
    if isinstance(steps := parse_scalar(str(keys.get("train.steps", ""))), int):
        page = replace(page, found=[*page.found, *schedule(steps)])
    page.write(path, kind, keys)
    if log is not None:
        for finding in page.findings:
            log(finding)
    return path


def _expand_folders(files: Sequence[str]) -> list[str]:
    """Replace folders by globs of files; several folders are classes (CLASS:GLOB)."""
    names = [one for file in files for one in _matching_folders(file)]
    folders = [Path(name).expanduser() for name in names]
    classes = _class_names(folders) if all(folder.is_dir() for folder in folders) else {}
    return [one for name, folder in zip(names, folders) for one in _expand_folder(name, classes.get(folder, ""))]


def _expand_folder(file: str, tag: str = "") -> list[str]:
    """Replace a folder by a glob of its most common file type.

    A folder without files is replaced by a glob for each subfolder. Subfolders are parts (train, valid, test) or
    classes.
    """
    own, name = split_tag(file)
    tag, name, folder = tag or own, name.rstrip("/"), Path(name).expanduser()
    if not folder.is_dir():
        return [file]
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if endings := Counter(path.suffix for path in inside if path.is_file()):
        glob = f"{name}/*{endings.most_common(1)[0][0]}"
        return [f"{tag}:{glob}" if tag else glob]
    classes = {} if tag else _class_names(inside)
    below = [(path, _expand_folder(f"{name}/{path.name}", tag or classes.get(path, ""))) for path in inside]
    return [one for path, found in below for one in found if one != f"{name}/{path.name}"] or [file]


def _matching_folders(file: str) -> list[str]:
    """Folders matched by a glob; any other name is returned unchanged."""
    path = Path(file).expanduser()
    if path.exists() or split_tag(file)[0] or not any(mark in file for mark in GLOB_CHARACTERS):
        return [file]
    hits = expand_glob(path)
    return [str(hit) for hit in hits] if hits and all(hit.is_dir() for hit in hits) else [file]


def _class_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Class of each folder; {} if the folders are not classes.

    Folders are not classes if they are parts (train, valid, test), or if their names differ only in digits (sector1,
    sector2).
    """
    names = [folder.resolve().name for folder in folders]
    other = any(part_of(name) or NO_CLASS.search(name) for name in names)
    if other or len({re.sub(r"\d+", "", name) for name in names}) < 2:
        return {}
    return dict(zip(folders, names))


def _expand_glob(name: str) -> list[str]:
    """Replace a glob by its files if the files belong to different parts."""
    tag, rest = split_tag(name)
    path = Path(rest).expanduser()
    if path.exists() or not any(mark in rest for mark in GLOB_CHARACTERS):
        return [name]
    hits = expand_glob(path)
    told = len(set(parts_of([str(hit) for hit in hits]))) > 1 and len({hit.is_dir() for hit in hits}) == 1
    return [f"{tag}:{hit}" if tag else str(hit) for hit in hits] if told else [name]


def _recipe_name(files: Sequence[str | Path], found: Sequence[Path]) -> str:
    """Name of the recipe, from the first file or the folder of this file."""
    folder = Path(split_tag(str(files[0]))[1]).expanduser()
    name = folder.resolve().name if folder.is_dir() else found[0].name
    return name.partition(".")[0] or "recipe"
