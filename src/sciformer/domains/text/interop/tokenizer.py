"""The tokenizer of a folder of others: which keys of `tokens:` say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....errors import UserError
from ....interop.reading import read_json
from ..subwords import TOKENIZER_FILE, load_subwords, read_tokenizer_text

UNITS_BY_MODEL = {"BPE": "bpe", "WordPiece": "wordpiece", "Unigram": "unigram", "WordLevel": "words"}
TOKEN_ROLES = {"padding": "pad_token", "unknown": "unk_token", "mask": "mask_token", "separator": "sep_token"}


def read_tokenizer(folder: Path) -> str:
    """The text of tokenizer.json."""
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        others = [name for name in ("tokenizer.model", "vocab.txt", "vocab.json") if (folder / name).is_file()]
        raise UserError(
            f"{folder} has no {TOKENIZER_FILE}" + (f", only {', '.join(others)}" if others else ""),
            hint="AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of the package transformers writes it.",
            file=folder,
        )
    return read_tokenizer_text(path)


def read_names(folder: Path) -> dict[str, str]:
    """The names of special tokens (`pad_token`, ...) in the files beside a tokenizer."""
    found: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        values = read_json(folder / name) if (folder / name).is_file() else {}
        for key, value in values.items():
            value = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(value, str):
                found[key] = value
    return found


def token_keys(text: str, names: dict[str, str]) -> dict[str, Any]:
    """The keys of `tokens:` for the text of a tokenizer.json: unit, special tokens, and what is put around a text."""
    coder = load_subwords(text, (), False)
    tokenizer, known = coder.tokenizer, coder.numbers
    special = {role: names[key] for role, key in TOKEN_ROLES.items() if names.get(key) in known}
    first, last = _added_tokens(tokenizer)
    ends = {"begin": first or names.get("bos_token", ""), "end": last or names.get("eos_token", "")}
    special |= {role: name for role, name in ends.items() if name in known}
    unit = UNITS_BY_MODEL.get(type(tokenizer.model).__name__)
    if unit is None:
        found = type(tokenizer.model).__name__
        raise UserError(f"the tokenizer must be of the type {' or '.join(UNITS_BY_MODEL)}, not {found}")
    return {"unit": unit, "special": special, "begin": bool(first), "end": bool(last)}


def _added_tokens(tokenizer: Any) -> tuple[str, str]:
    """The special tokens that a tokenizer puts before and after each text; "" where it puts none."""
    bare, framed = (tokenizer.encode("a", add_special_tokens=added).tokens for added in (False, True))
    for first in (0, 1):
        for last in (0, 1):
            if framed[first : len(framed) - last] == bare:
                return "".join(framed[:first]), framed[-1] if last else ""
    raise UserError(
        f"the tokenizer may put at most one token before and after each text, but makes {' '.join(framed)} of a"
    )
