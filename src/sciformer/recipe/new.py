"""Write a recipe for the user's own files, with the reason of every guess.

    path = new("text", ["letters.txt"])    writes letters.yaml

The files are read by the readers of the training, so files that cannot be read are refused here.
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


def new(kind: str, files: Sequence[str | Path], out: str | Path | None = None, *, overwrite: bool = False) -> Path:
    """Write a commented recipe for files of a kind; return its path.

    kind        kind of the files: text, images, ...; or the first file, if its name shows the kind
    out         .yaml file to write (default: named after the first file, in the current folder)
    overwrite   replace an existing recipe
    """
    known: dict[str, Guess] = {name: find("new", name) for name in names("new")}
    if kind not in known:
        for name, guess in known.items():
            if guess.recognises(kind):
                kind, files = name, [kind, *files]
                break
    if kind not in known and Path(kind).expanduser().exists():
        way = f"Write sciformer new KIND {kind}, where KIND is one of {', '.join(known)}."
        raise UserError(f"the kind of the files is missing before '{kind}'", hint=way, file=kind)
    one_of("the kind of the files", kind, known)
    guess = known[kind]
    if not files:
        raise UserError("the file names are missing", hint=f"Write sciformer new {kind} FILE ...")
    given = [str(file) for file in (_expand_folders(files) if guess.tagged else files)]
    found = (guess.find or find_files)([split_tag(name)[1] if guess.tagged else name for name in given])
    path = Path(out).expanduser() if out is not None else Path(f"{_recipe_name(files, found)}.yaml")
    check_new_recipe(path, overwrite)
    guess.page(given, found).write(path, kind)
    return path


def _expand_folders(files: Sequence[str | Path]) -> list[str | Path]:
    """Replace each folder by a glob of its most common file type."""
    found: list[str | Path] = []
    for file in files:
        folder = Path(split_tag(str(file))[1]).expanduser()
        endings = Counter(path.suffix for path in folder.iterdir() if path.is_file()) if folder.is_dir() else Counter()
        found.append(f"{str(file).rstrip('/')}/*{endings.most_common(1)[0][0]}" if endings else file)
    return found


def _recipe_name(files: Sequence[str | Path], found: Sequence[Path]) -> str:
    """Recipe name from the first file, or from its folder."""
    folder = Path(split_tag(str(files[0]))[1]).expanduser()
    name = folder.resolve().name if folder.is_dir() else found[0].name
    return name.partition(".")[0] or "recipe"
