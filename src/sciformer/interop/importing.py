"""From a model of others to a run: each field reads the files that it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..errors import UserError
from ..recipe.field import extensions
from ..run import Run
from .config import Config
from .reading import read_json
from .run_writer import Imported, refuse_files, write_run

Changes = Mapping[str, Any] | None


@dataclass(frozen=True)
class Importer:
    """A reader of the models of one field.

    recognises    whether a file or folder is one of these models
    read          function (source, folder of the run to be made, changes of its recipe) -> the model in our words
    model_types   values of `model_type` in a config.json that it reads
    """

    recognises: Callable[[Path], bool]
    read: Callable[[Path, Path, Changes], Imported]
    model_types: tuple[str, ...] = ()


def import_model(
    source: str | Path, run: str | Path, changes: Changes = None, log: Callable[[str], object] | None = None
) -> Run:
    """Make a run of a model of others: a folder, or a file of weights.

    changes    of the recipe, such as {"model.heads": 8}
    log        function that is told what was left out
    """
    source, run = Path(source).expanduser(), Path(run).expanduser()
    refuse_files(run)
    importer = next((one for one in extensions("importers") if one.recognises(source)), None)
    if importer is None:
        refuse_unknown(source)
    made = importer.read(source, run, changes)
    write_run(run, made, source)
    if log is not None:
        for note in made.notes:
            log(note)
    return Run(run)


def refuse_unknown(source: Path) -> NoReturn:
    """Refuse a file or folder that no field reads."""
    if not source.is_dir():
        found = f"{source} is a file, not a folder" if source.exists() else f"there is no folder {source}"
        raise UserError(f"{found} of a Hugging Face model", file=source)
    file = source / "config.json"
    refuse_type(Config(read_json(file), file.name, file))


def refuse_type(config: Config) -> NoReturn:
    """Refuse the `model_type` of a configuration, and name those that are read."""
    kind = config.get("model_type", "", str)
    known = ", ".join(name for one in extensions("importers") for name in one.model_types)
    raise UserError(f"`model_type` in {config.where} must be one of {known}, not {kind!r}", file=config.file)
