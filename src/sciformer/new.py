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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from .data.readers.image_listing import listed
from .data.source import find_files
from .errors import UserError, one_of
from .guess.curves import lightcurves
from .guess.images import images, pictured
from .guess.jets import jets, untagged
from .guess.patches import patches
from .guess.text import text
from .recipe import Recipe
from .whole import check_name


def new(
    kind: str,
    files: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write a commented recipe for files of a kind, and say where.

    kind        `text` (running text, translations, labelled or tagged texts), or `patches` (also called `arrays`):
                images, lattices or maps in .npz files; or `jets` in ROOT, HDF5, Parquet or .npz files, which may
                have their class before the name, QCD:qcd.root; or `lightcurves` in Parquet, CSV, ECSV or FITS files;
                or `images`: pictures, folders, tables of pictures, arrays. It may be left out before names of
                pictures or of folders with them
    out         a .yaml file; unless given, named after the first file, in this folder
    overwrite   replace a recipe that is there
    """
    if kind not in KINDS and pictured(kind):
        kind, files = "images", [kind, *files]
    if kind not in KINDS and Path(kind).expanduser().exists():
        way = f"sciformer new KIND {kind}, where KIND is one of {', '.join(KINDS)}"
        raise UserError(f"what your files hold must be named before '{kind}'", hint=way, file=kind)
    one_of("the kind of your files", kind, KINDS)
    if not files:
        raise UserError("the names of your files are missing", hint=f"sciformer new {kind} FILE ...")
    given, files = files, _opened(files) if kind in TAGGED else files
    found = _found(kind, list(files))
    path = Path(out).expanduser() if out is not None else Path(f"{_stem(given, found)}.yaml")
    check_name(path, (".yaml", ".yml"), "a recipe")
    if path.exists() and not overwrite:
        raise UserError(
            f"{path} exists already", hint="Name another file with --out, or replace it with --overwrite.", file=path
        )
    page = KINDS[kind]([str(file) for file in files], found)
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


def _found(kind: str, files: list[str | Path]) -> list[Path]:
    """The files that are meant."""
    if kind == "images":
        return [entry.path for entry in listed(files).entries]
    return find_files([untagged(str(file)) for file in files] if kind in TAGGED else files, "files")


def _opened(files: Sequence[str | Path]) -> list[str | Path]:
    """The same with a glob in place of a folder: its files with the commonest ending, a class before it stays."""
    names: list[str | Path] = []
    for file in files:
        folder = Path(untagged(str(file))).expanduser()
        kinds = Counter(path.suffix for path in folder.iterdir() if path.is_file()) if folder.is_dir() else Counter()
        names.append(f"{str(file).rstrip('/')}/*{kinds.most_common(1)[0][0]}" if kinds else file)
    return names


def _stem(files: Sequence[str | Path], found: Sequence[Path]) -> str:
    """The name of a recipe: that of the first file, or of the folder that was named."""
    folder = Path(untagged(str(files[0]))).expanduser()
    name = folder.resolve().name if folder.is_dir() else found[0].name
    return name.partition(".")[0] or "recipe"


KINDS: dict[str, Callable[[list[str], list[Path]], str]] = {
    "text": text,
    "patches": patches,
    "arrays": patches,
    "jets": jets,
    "lightcurves": lightcurves,
    "images": images,
}
TAGGED = ("jets", "lightcurves")  # names of files may have a class before them
