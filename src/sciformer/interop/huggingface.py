"""From a folder of Hugging Face to a run: its configuration becomes a recipe, its weights ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ..assembly import Assembly
from ..errors import UserError
from ..recipe import Recipe
from ..run import Run
from .bert import BERT, ROBERTA
from .config import Config
from .family import EMBEDDING, POSITION, Family
from .gpt2 import GPT2
from .images import MODELS, import_images, is_images
from .links import take_all
from .llama import LLAMA
from .reading import read_json, read_pickled, read_pooling, read_tensors
from .spelling import FILE, read_names, read_tokenizer, token_keys
from .timm import is_timm
from .writing import Imported, refuse_files, write_run

FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
}


@dataclass
class Foreign:
    """A model of others, read but not yet understood."""

    name: str
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: str
    special: dict[str, str]
    pool: str = ""
    notes: list[str] = field(default_factory=list)
    where: str = "config.json"
    file: Path | None = None


def import_model(source: str | Path, run: str | Path, changes: Mapping[str, Any] | None = None, say: Any = None) -> Run:
    """Make a run of a model of others: a folder of Hugging Face or timm, a .gguf file, weights of a vision transformer
    of timm (.safetensors, .pth), a checkpoint of weaver (.pt), or the weights of ASTROMER 1 (.npz).

    changes    of the recipe, such as {"tokens.context": 128}
    say        hears what was left out
    """
    source, run = Path(source).expanduser(), Path(run).expanduser()
    refuse_files(run)
    made = _other(source, changes)
    if made is not None:
        write_run(run, made, source)
        for note in made.notes if say else ():
            say(note)
        return Run(run)
    foreign = _gguf(source) if source.suffix == ".gguf" else read_folder(source)
    recipe, weights = convert(foreign, str(run.resolve() / "model" / FILE), changes)
    state = {"tokens": {"tokens": {"tokenizer": foreign.tokenizer}}, "objective": {}}
    files = {FILE: foreign.tokenizer}
    made = Imported(foreign.name, recipe, weights, state, foreign.config, foreign.notes, files)
    write_run(run, made, source, lambda assembly: _check_size(weights, assembly, foreign))
    for note in foreign.notes if say else ():
        say(note)
    return Run(run)


def _other(source: Path, changes: Mapping[str, Any] | None) -> Imported | None:
    """A model of something else than text; None where it is of text."""
    if source.suffix == ".npz":
        from .astromer import import_astromer

        return import_astromer(source, changes)
    if source.suffix in (".pt", ".pth") and not is_timm(read_pickled(source)):
        from .weaver import import_weaver

        return import_weaver(source, changes)
    if source.suffix in (".pt", ".pth", ".safetensors") or is_images(source):
        return import_images(source, changes)
    return None


def read_folder(folder: Path) -> Foreign:
    """The files of a folder."""
    if not folder.is_dir():
        found = f"{folder} is a file, not a folder" if folder.exists() else f"there is no folder {folder}"
        raise UserError(f"{found} of a Hugging Face model", file=folder)
    file, notes = folder / "config.json", list[str]()
    config = read_json(file)
    _family(Config(config, "config.json", file))
    pool = read_pooling(folder, notes)
    return Foreign(
        folder.resolve().name,
        config,
        read_tensors(folder),
        read_tokenizer(folder),
        read_names(folder),
        pool,
        notes,
        file=file,
    )


def convert(
    foreign: Foreign, tokenizer: str, changes: Mapping[str, Any] | None = None
) -> tuple[Recipe, dict[str, Tensor]]:
    """The recipe and the weights of a model of others; `tokenizer` is where its vocabulary will lie."""
    config = Config(foreign.config, foreign.where, foreign.file)
    family, kind = _family(config), config.get("model_type", "", str)
    tensors = family.plain(foreign.tensors, config, foreign.notes)
    sections = family.sections(tensors, config)
    tokens = token_keys(foreign.tokenizer, foreign.special)
    sections["tokens"] |= {"kind": "text", "tokenizer": tokenizer, "vocabulary": config.size("vocab_size"), **tokens}
    if foreign.pool:
        if sections["model"]["kind"] != "encoder":
            raise UserError(
                f"the pooling in modules.json needs an encoder, not `model_type: {kind}`", file=foreign.file
            )
        sections["model"]["pool"] = foreign.pool
    config.done()
    recipe = Recipe.of(
        {
            "about": {"title": f"{foreign.name}, imported", "note": f"A {kind} model of others."},
            "data": {"kind": "text", "documents": "line"},
            **sections,
        },
        changes,
        where="in changes of the imported recipe",
    )
    weights = take_all(family.links(recipe), tensors, foreign.where, foreign.file)
    if POSITION in weights:
        places, context = len(weights[POSITION]), recipe.tokens.context
        if context > places:
            raise UserError(
                f"tokens.context must be at most {places}, the places that were learned, not {context}",
                key="tokens.context",
            )
        weights[POSITION] = weights[POSITION][:context].clone()
    return recipe, weights


def _family(config: Config) -> Family:
    """The family that a configuration names."""
    kind = config.get("model_type", "", str)
    if kind not in FAMILIES:
        known = ", ".join((*FAMILIES, *MODELS))
        raise UserError(f"`model_type` in {config.where} must be one of {known}, not {kind!r}", file=config.file)
    return FAMILIES[kind]


def _check_size(weights: dict[str, Tensor], assembly: Assembly, foreign: Foreign) -> None:
    (tokens,) = assembly.tokens.values()
    size: int = tokens.size  # type: ignore[attr-defined]
    if len(weights[EMBEDDING]) != size:
        raise UserError(
            f"there must be vectors for {size} tokens, as `vocab_size` in {foreign.where} says, not for "
            f"{len(weights[EMBEDDING])}",
            file=foreign.file,
        )


def _gguf(path: Path) -> Foreign:
    from .gguf import read_gguf

    return read_gguf(path)
