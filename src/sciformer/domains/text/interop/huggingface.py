"""Import of Hugging Face folders and GGUF files as runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ....assembly import Assembly
from ....errors import UserError
from ....interop.config import Config
from ....interop.family import POSITION_WEIGHT
from ....interop.importing import Changes, Imported, Importer, imported_recipe, refuse_type
from ....interop.reading import read_config, read_json, read_pooling, read_tensors
from ....interop.weight_map import from_theirs
from ....recipe import Recipe
from ..subwords import TOKENIZER_FILE, load_subwords, read_tokenizer_text
from .families import BERT, EMBEDDING_WEIGHT, GPT2, GPT_NEOX, LLAMA, ROBERTA, Family

FAMILIES: dict[str, Family] = {
    "bert": BERT,
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), ROBERTA),
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    **dict.fromkeys(("llama", "mistral", "qwen2"), LLAMA),
}
UNITS_BY_MODEL = {"BPE": "bpe", "WordPiece": "wordpiece", "Unigram": "unigram", "WordLevel": "words"}
TOKEN_ROLES = {"padding": "pad_token", "unknown": "unk_token", "mask": "mask_token", "separator": "sep_token"}


@dataclass
class ForeignModel:
    """Language model of another library: configuration, weights and tokenizer."""

    name: str
    config: Config
    tensors: dict[str, Tensor]
    tokenizer: str
    special: dict[str, str]
    pool: str = ""
    notes: list[str] = field(default_factory=list)


def recognises(source: Path) -> bool:
    """Whether a path is a .gguf file, or a folder with a model of a known family."""
    file = source / "config.json"
    kind = read_json(file).get("model_type") if file.is_file() else None
    return source.suffix == ".gguf" or (isinstance(kind, str) and kind in FAMILIES)


def read_model(source: Path, run: Path, changes: Changes) -> Imported:
    """Import a language model, with its tokenizer.json, as a run."""
    from .gguf import read_gguf

    foreign = read_gguf(source) if source.suffix == ".gguf" else read_folder(source)
    recipe, weights = convert_model(foreign, str(run.resolve() / "model" / TOKENIZER_FILE), changes)
    state = {"tokens": {"tokens": {"tokenizer": foreign.tokenizer}}, "objective": {}}

    def check_size(assembly: Assembly) -> None:
        (tokens,), config = assembly.tokens.values(), foreign.config
        size, found = tokens.size, len(weights[EMBEDDING_WEIGHT])  # type: ignore[attr-defined]
        if found != size:
            raise config.error(f"`vocab_size` in {config.where} is {size}, but the embedding has {found} vectors")

    files = {TOKENIZER_FILE: foreign.tokenizer}
    return Imported(foreign.name, recipe, weights, state, foreign.config.values, foreign.notes, files, check_size)


def read_folder(folder: Path) -> ForeignModel:
    """Read a model from a Hugging Face folder."""
    config, notes = read_config(folder), list[str]()
    _find_family(config)
    pool, tensors = read_pooling(folder, notes), read_tensors(folder)
    return ForeignModel(folder.resolve().name, config, tensors, read_tokenizer(folder), read_names(folder), pool, notes)


def convert_model(foreign: ForeignModel, tokenizer: str, changes: Changes) -> tuple[Recipe, dict[str, Tensor]]:
    """Recipe and weights in the layout of Sciformer.

    tokenizer  path of the tokenizer.json in the run folder
    changes    recipe keys to change
    """
    config = foreign.config
    family, kind = _find_family(config), config.get("model_type", "", str)
    tensors = family.canonical_names(foreign.tensors, config, foreign.notes)
    sections = family.sections(tensors, config)
    tokens = token_keys(foreign.tokenizer, foreign.special)
    sections["tokens"] |= {"kind": "text", "tokenizer": tokenizer, "vocabulary": config.size("vocab_size"), **tokens}
    if foreign.pool:
        if sections["model"]["kind"] != "encoder":
            raise config.error(f"the pooling in modules.json needs an encoder, not `model_type: {kind}`")
        sections["model"]["pool"] = foreign.pool
    config.done()
    data = {"kind": "text", "documents": "line"}
    recipe = imported_recipe(foreign.name, f"An imported {kind} model.", {"data": data, **sections}, changes)
    weights = from_theirs(family.links(recipe), tensors, config)
    if POSITION_WEIGHT in weights:
        places, context = len(weights[POSITION_WEIGHT]), recipe.tokens.context
        if context > places:
            message = f"tokens.context must be at most {places}, the number of learned positions, not {context}"
            raise UserError(message, key="tokens.context")
        weights[POSITION_WEIGHT] = weights[POSITION_WEIGHT][:context].clone()
    return recipe, weights


def _find_family(config: Config) -> Family:
    kind = config.get("model_type", "", str)
    if kind not in FAMILIES:
        refuse_type(config)
    return FAMILIES[kind]


# Tokenizers


def read_tokenizer(folder: Path) -> str:
    """Text of the file tokenizer.json in a folder."""
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        others = [name for name in ("tokenizer.model", "vocab.txt", "vocab.json") if (folder / name).is_file()]
        raise UserError(
            f"{folder} has no {TOKENIZER_FILE}" + (f", only {', '.join(others)}" if others else ""),
            hint="Write it with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
            file=folder,
        )
    return read_tokenizer_text(path)


def read_names(folder: Path) -> dict[str, str]:
    """Names of special tokens (`pad_token`, ...) in the files next to a tokenizer."""
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            values = read_json(folder / name).items()
            found |= {key: one.get("content") if isinstance(one, dict) else one for key, one in values}
    return {key: name for key, name in found.items() if key.endswith("_token") and isinstance(name, str)}


def token_keys(text: str, names: dict[str, str]) -> dict[str, Any]:
    """Recipe keys `unit`, `special`, `begin` and `end` for a tokenizer.json."""
    coder = load_subwords(text, (), False)
    tokenizer, known = coder.tokenizer, coder.numbers
    special = {role: names[key] for role, key in TOKEN_ROLES.items() if names.get(key) in known}
    first, last = _added_tokens(tokenizer)
    ends = {"begin": first or names.get("bos_token", ""), "end": last or names.get("eos_token", "")}
    special |= {role: name for role, name in ends.items() if name in known}
    if (kind := type(tokenizer.model).__name__) not in UNITS_BY_MODEL:
        raise UserError(f"the type of the tokenizer must be {' or '.join(UNITS_BY_MODEL)}, not {kind}")
    return {"unit": UNITS_BY_MODEL[kind], "special": special, "begin": bool(first), "end": bool(last)}


def _added_tokens(tokenizer: Any) -> tuple[str, str]:
    """Special tokens added by a tokenizer before and after each text; "" for none."""
    bare, framed = (tokenizer.encode("a", add_special_tokens=added).tokens for added in (False, True))
    for first, last in ((0, 0), (0, 1), (1, 0), (1, 1)):
        if framed[first : len(framed) - last] == bare:
            return "".join(framed[:first]), framed[-1] if last else ""
    raise UserError(
        "the tokenizer adds more than one special token before or after a text, which is not supported: "
        f"'a' becomes {' '.join(framed)}"
    )


IMPORTER = Importer(recognises, read_model, tuple(FAMILIES))
