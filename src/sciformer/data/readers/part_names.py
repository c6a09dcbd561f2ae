"""Train, valid or test part of the data, from names of files, folders and arrays.

    part_of("newstest2014.en")              "test"
    group_by_part(["train.en", "coco.en"])  {"train": ["train.en"], "coco": ["coco.en"]}

A name that says test or validation never becomes training data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from ...errors import UserError, list_names
from ..source import STANDARD_PARTS

PART_WORDS = {
    **dict.fromkeys(("train", "training", "trn", "trainval"), "train"),
    **dict.fromkeys(("valid", "val", "dev", "devel", "development", "validation", "testa", "tune", "tuning"), "valid"),
    **dict.fromkeys(("test", "tst", "testing", "testb", "eval", "evaluation", "t10k"), "test"),
}
PART_WORD = re.compile(rf"(news)?({'|'.join(PART_WORDS)})(?:set|data)?(\d*)")
CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
SHARD_NUMBER = re.compile(r"[-_.]?(?<!\d)(?!(?:19|20)\d\d$)\d+([-_]of[-_]\d+)?$")  # years are no shard numbers
FILE_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,8}")


def name_words(name: str) -> list[str]:
    """Lower-case words of the name of a file, folder or array."""
    return re.split(r"[\W_]+", CAMEL_CASE.sub("_", name).lower())


def part_of(name: str) -> str:
    """Part in the words of a name: test, else valid, else train; "" if none."""
    found = {PART_WORDS[match[2]] for match in map(PART_WORD.fullmatch, name_words(name)) if match}
    return next((part for part in reversed(STANDARD_PARTS) if part in found), "")


def without_part(name: str) -> str:
    """Name without the word for a part: `2017` from `test_2017`, `x` from `x_train`."""
    matches = [(word, PART_WORD.fullmatch(word)) for word in name_words(name)]
    return "_".join(filter(None, [(match[1] or "") + match[3] if match else word for word, match in matches]))


def group_by_part(names: Sequence[str], tags: Sequence[str] = ()) -> dict[str, list[str]]:
    """Group file names by part: train, valid, test, and further test sets.

    The part is a word in the file name, or else in the name of a folder, from the file upwards; folders common to all
    files do not count. If some files are named as training data, files without a part in their name (coco.en) are
    further test sets.

    tags   class of each file, if the files have classes; files of all classes stay in one part
    """
    tags = tags or [""] * len(names)
    told = _named_levels(names)
    parts = [part for part, _ in told]
    taught = {tag for tag, part in zip(tags, parts) if part == "train"}
    if "train" not in parts:
        parts = [part or "train" for part in parts]
    parts = ["train" if tag and not part and tag not in taught else part for tag, part in zip(tags, parts)]
    if "train" not in parts:
        shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        hint = f"Add a training file. To train on these files anyway, use --data.files {' '.join(names[:4])}"
        message = f"there is no file to train on: all files are named as test or validation data ({shown})"
        raise UserError(message, hint=hint)
    seen = {without_part(level) for part, (_, level) in zip(parts, told) if part == "train"}
    found: dict[str, list[str]] = {"train": []}
    sets: dict[str, str] = {}  # key of each test set, by the name without the part
    for name, tag, part, (_, level) in zip(names, tags, parts, told):
        own = without_part(level)
        if part == "test" and not tag and own not in seen:
            key = sets.setdefault(own, "test" if "test" not in (*sets.values(), *found) else _set_name(level))
        else:
            key = part or ("test" if tag else _set_name(level))
        found.setdefault(key, []).append(name)
    return found


def note_test_files(paths: Iterable[Path | str]) -> list[str]:
    """Note on training files with the name of test or validation data.

    If all training files have such a name, there is no note.
    """
    names = list(dict.fromkeys(map(str, paths)))
    odd = [name for name in names if part_of(Path(name).name) in ("valid", "test")]
    if not odd or len(odd) == len(names):
        return []
    files = "file is" if len(odd) == 1 else "files are"
    return [
        f"{len(odd)} training {files} named as test or validation data, but used for training: {list_names(odd, 3)}."
    ]


def _levels(names: Sequence[str]) -> list[list[str]]:
    """For each name: the file name, then its folders below the common folder."""
    paths = [PurePath(os.path.normpath(Path(name).expanduser())) for name in names]
    folders = [path.parent.parts for path in paths]
    common = next((n for n, same in enumerate(zip(*folders)) if len(set(same)) > 1), min(map(len, folders)))
    return [[path.name, *reversed(own[common:])] for path, own in zip(paths, folders)]


def _named_levels(names: Sequence[str]) -> list[tuple[str, str]]:
    """Part of each file, and the file or folder name with the word for this part."""

    def named_part(levels: Sequence[str]) -> tuple[str, str]:
        return next(((part, _stem(level)) for level in levels if (part := part_of(level))), ("", _stem(levels[0])))

    return [named_part(levels) for levels in _levels(names)]


def parts_of(names: Sequence[str]) -> list[str]:
    """Part of each file, from its name or the names of its folders; "" if unknown."""
    return [part for part, _ in _named_levels(names)]


def _stem(name: str) -> str:
    """File name without suffixes, wildcards and shard number."""
    part, name = part_of(name), re.sub(r"[*?{}\[\]]+", "", name)
    while (match := re.search(rf"(?<=.){FILE_SUFFIX.pattern}$", name)) and part_of(name[: match.start()]) == part:
        name = name[: match.start()]
    return SHARD_NUMBER.sub("", name.rstrip("-_.")).rstrip("-_.") or name


def _set_name(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_") or "other"
