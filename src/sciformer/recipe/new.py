"""A recipe for the user's own files, with the reason of every guess.

    path = new("text", ["letters.txt"])    writes letters.yaml

The files are read by the readers that the training will use, so what they refuse is refused here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..data.fileset import split_tag
from ..data.source import find_files
from ..errors import UserError, one_of
from .guess import Guess
from .page import check_new_recipe
from .registry import find, names


def kinds() -> dict[str, Guess]:
    """The kinds of files that fields and plugins can write recipes for, by name."""
    return {name: find("new", name) for name in names("new")}


def new(kind: str, files: Sequence[str | Path], out: str | Path | None = None, *, overwrite: bool = False) -> Path:
    """Write a commented recipe for files of a kind, and say where.

    kind        what the files hold, by the name that a field gave it (`kinds()`); it may be left out where the name of
                a file says it, as those of pictures do
    out         a .yaml file (default: named after the first file, in this folder)
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
    given = [str(file) for file in (_expand_folders(files) if guess.tagged else files)]
    found = (guess.find or find_files)([_without_tag(name) if guess.tagged else name for name in given])
    path = Path(out).expanduser() if out is not None else Path(f"{_recipe_name(files, found)}.yaml")
    check_new_recipe(path, overwrite)
    guess.page(given, found).write(path, kind)
    return path


def _without_tag(name: str) -> str:
    """A name without the class before it: CLASS:FILE is FILE."""
    return split_tag(name)[1]


def _expand_folders(files: Sequence[str | Path]) -> list[str | Path]:
    """The names with a glob in place of a folder: its files with the commonest ending."""
    found: list[str | Path] = []
    for file in files:
        folder = Path(_without_tag(str(file))).expanduser()
        endings = Counter(path.suffix for path in folder.iterdir() if path.is_file()) if folder.is_dir() else Counter()
        found.append(f"{str(file).rstrip('/')}/*{endings.most_common(1)[0][0]}" if endings else file)
    return found


def _recipe_name(files: Sequence[str | Path], found: Sequence[Path]) -> str:
    """The name of a recipe: that of the first file, or of the folder that was named."""
    folder = Path(_without_tag(str(files[0]))).expanduser()
    name = folder.resolve().name if folder.is_dir() else found[0].name
    return name.partition(".")[0] or "recipe"
