"""A recipe for the user's own files: what is in them, and what was guessed from it, with the reason of every guess.

    path = new("text", ["letters.txt"])             writes letters.yaml
    path = new("text", ["train.en", "train.de"])    writes train.yaml
    path = new("patches", ["galaxies.npz"])         writes galaxies.yaml
    path = new("jets", ["top.root", "qcd.root"])    writes top.yaml
    path = new("lightcurves", ["asas.parquet"])     writes asas.yaml
    path = new("images", ["galaxies"])              writes galaxies.yaml, for a folder; so for jets and lightcurves

The files are read by the readers that the training will use, so what they refuse is refused here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..data.fileset import split_tag
from ..data.source import find_files
from ..errors import UserError, one_of
from ..files.atomic import check_name
from .field import load, places
from .page import Guess
from .recipe import Recipe


def kinds() -> dict[str, Guess]:
    """The kinds of files that fields can write recipes for, by name."""
    return {name: load(place) for name, place in places("new").items()}


def new(
    kind: str,
    files: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write a commented recipe for files of a kind, and say where.

    kind        what the files hold, by the name that a field gave it (`kinds()`); it may be left out where the name of
                a file says it, as those of pictures do
    out         a .yaml file; unless given, named after the first file, in this folder
    overwrite   replace a recipe that is there
    """
    known = kinds()
    if kind not in known:
        for name, guess in known.items():
            if guess.recognises(kind):
                kind, files = name, [kind, *files]
                break
    if kind not in known and Path(kind).expanduser().exists():
        way = f"sciformer new KIND {kind}, where KIND is one of {', '.join(known)}"
        raise UserError(f"what your files hold must be named before '{kind}'", hint=way, file=kind)
    one_of("the kind of your files", kind, known)
    guess = known[kind]
    if not files:
        raise UserError("the names of your files are missing", hint=f"sciformer new {kind} FILE ...")
    given, files = files, _expand_folders(files) if guess.tagged else files
    found = _find_files(guess, list(files))
    path = Path(out).expanduser() if out is not None else Path(f"{_recipe_name(given, found)}.yaml")
    check_name(path, (".yaml", ".yml"), "a recipe")
    if path.exists() and not overwrite:
        raise UserError(
            f"{path} exists already", hint="Name another file with --out, or replace it with --overwrite.", file=path
        )
    page = guess.write([str(file) for file in files], found)
    beside = path.with_name(f".{path.stem}.{os.getpid()}.yaml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(page, "utf-8")
        Recipe.load(beside)  # what is written can be read
        beside.replace(path)
    except OSError as error:
        raise UserError(
            f"a recipe cannot be written at {path}: {error.strerror}", hint="Name another place with --out.", file=path
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return path


def _find_files(guess: Guess, files: list[str | Path]) -> list[Path]:
    """The files that are meant."""
    if guess.find is not None:
        return guess.find(files)
    return find_files([remove_tag(str(file)) for file in files] if guess.tagged else files, "files")


def remove_tag(name: str) -> str:
    """A name without the class before it: HToBB:a.root is a.root."""
    return split_tag(name)[1]


def _expand_folders(files: Sequence[str | Path]) -> list[str | Path]:
    """The same with a glob in place of a folder: its files with the commonest ending, a class before it stays."""
    names: list[str | Path] = []
    for file in files:
        folder = Path(remove_tag(str(file))).expanduser()
        kinds = Counter(path.suffix for path in folder.iterdir() if path.is_file()) if folder.is_dir() else Counter()
        names.append(f"{str(file).rstrip('/')}/*{kinds.most_common(1)[0][0]}" if kinds else file)
    return names


def _recipe_name(files: Sequence[str | Path], found: Sequence[Path]) -> str:
    """The name of a recipe: that of the first file, or of the folder that was named."""
    folder = Path(remove_tag(str(files[0]))).expanduser()
    name = folder.resolve().name if folder.is_dir() else found[0].name
    return name.partition(".")[0] or "recipe"
