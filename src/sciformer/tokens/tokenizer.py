"""Subwords, through the package `tokenizers`: learned from texts, or read from a tokenizer.json of Hugging Face."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .vocabulary import SHOWN, Array, Coder, Encoded, Names

AT_ONCE = 1000  # texts that are encoded together
THREADS = "TOKENIZERS_PARALLELISM"
_OURS: set[str] = set()  # what was set here and not by the user
USUAL = {  # names of special tokens in files of others, by their role; the first that is there counts
    "padding": ("[PAD]", "<pad>", "<|padding|>", "<|pad|>"),
    "unknown": ("[UNK]", "<unk>"),
    "begin": ("[CLS]", "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("[SEP]", "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
    "separator": ("<sep>", "[SEP]", "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
}


def package() -> Any:
    """The package itself."""
    try:
        import tokenizers
    except ImportError as error:
        raise UserError(
            "the package `tokenizers` for subwords", "none installed", "Install it: pip install 'sciformer[text]'"
        ) from error
    return tokenizers


class Subwords(Coder):
    """A tokenizer at work. Begin and end are not its business: what its file adds to a text by itself is left out."""

    def __init__(self, text: str, names: Names, learned: bool) -> None:
        """From the text of a tokenizer.json; of a `learned` one, the names of special tokens mean nothing in texts."""
        self.text, self.learned = text, learned
        try:
            self.tokenizer = package().Tokenizer.from_str(text)
        except UserError:
            raise
        except Exception as error:
            raise UserError("a tokenizer.json of Hugging Face", f"what cannot be read as one: {error}") from error
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = learned
        self.numbers: dict[str, int] = self.tokenizer.get_vocab(with_added_tokens=True)
        self.size = max(self.numbers.values(), default=-1) + 1
        added = self.tokenizer.get_added_tokens_decoder()
        self.names = {number: token.content for number, token in added.items() if token.special}
        self.specials = self._roles(dict(names), {token.content: number for number, token in added.items()}, text)

    def _roles(self, names: dict[str, str], added: dict[str, int], text: str) -> dict[str, int]:
        roles = {}
        for role, usual in USUAL.items():
            if role in names:
                if names[role] not in self.numbers:
                    raise UserError(
                        f"the {role} token {names[role]!r} in the vocabulary", "none", "See tokens.special."
                    )
                roles[role] = self.numbers[names[role]]
            elif found := [name for name in usual if name in added]:
                roles[role] = added[found[0]]
        if "unknown" not in roles:
            model = json.loads(text)["model"]
            if (name := model.get("unk_token")) in self.numbers:
                roles["unknown"] = self.numbers[name]
            elif (number := model.get("unk_id")) is not None:
                roles["unknown"] = number
        return roles

    @property
    def writable(self) -> Array:
        """(size,) which ids stand for text: those that are there and are no special tokens."""
        found = np.zeros(self.size, bool)
        found[list(self.numbers.values())] = True
        found[[*self.specials.values(), *self.names]] = False
        return found

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Many texts at once are encoded by all cores."""
        return self._encoded(list(texts), False)

    def encode_words(self, texts: Sequence[Sequence[str]]) -> list[Encoded]:
        """Each word as if it stood alone between blanks."""
        return self._encoded([list(words) for words in texts], True)

    def _encoded(self, texts: list[Any], split: bool) -> list[Encoded]:
        made: list[Encoded] = []
        with threads():
            for start in range(0, len(texts), AT_ONCE):
                part = texts[start : start + AT_ONCE]
                for one in self.tokenizer.encode_batch(part, is_pretokenized=split, add_special_tokens=False):
                    word = [-1 if number is None else number for number in one.word_ids]
                    made.append((np.array(one.ids, np.int32), np.array(word, np.int32)))
        return made

    def decode(self, ids: Array) -> str:
        """The pieces put together again."""
        shown = np.append(self.writable, False)  # what is beyond the vocabulary is padding of it
        if "unknown" in self.specials:
            shown[self.specials["unknown"]] = True
        kept = ids[shown[np.clip(ids, 0, self.size)]]
        text: str = self.tokenizer.decode(kept.tolist(), skip_special_tokens=False)
        return text

    def shown(self, ids: Array, word: Array | None) -> list[str]:
        """The pieces without marks of blanks; one that goes on with a word has a dot before it, or its own sign."""
        special = dict.fromkeys([*self.specials.values(), *self.names])
        found = []
        for place, number in enumerate(ids.tolist()):
            name = self.tokenizer.id_to_token(number) or ""
            if number not in special:
                goes_on = word is not None and place > 0 and word[place] == word[place - 1] >= 0
                name = self._piece(number, name, goes_on)
            found.append(name)
        return found

    def _piece(self, number: int, name: str, goes_on: bool) -> str:
        text = self.tokenizer.decode([number], skip_special_tokens=False)
        if "\ufffd" in text:  # a part of a character
            return name
        text = text.removeprefix(" ") or " "
        text = "".join(SHOWN.get(letter, letter) for letter in text)
        return text if not goes_on or text.startswith("##") else "·" + text


@lru_cache(maxsize=8)
def subwords(text: str, names: Names, learned: bool) -> Subwords:
    """The coder behind the text of a tokenizer.json."""
    return Subwords(text, names, learned)


def file_text(name: str | Path) -> str:
    """The text of a tokenizer.json, or of the one in a folder."""
    path = Path(name).expanduser()
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"a tokenizer.json of Hugging Face at {path}", f"{error}") from error


@contextmanager
def threads() -> Iterator[None]:
    """All cores for a while; never in a worker, whose parent had threads that it has not."""
    if THREADS in os.environ and not _OURS:
        yield
        return
    _OURS.add(THREADS)
    os.environ[THREADS] = "true" if multiprocessing.parent_process() is None else "false"
    try:
        yield
    finally:
        os.environ[THREADS] = "false"  # said, not left open: a fork would warn about it


def exported(coder: Coder, frame: dict[str, int], lower: bool, normal: str) -> str:
    """The text of a tokenizer.json that does the same; the special tokens of `frame` are put around each text."""
    library = package()
    if isinstance(coder, Subwords):
        if not coder.learned:
            return coder.text
        made = library.Tokenizer.from_str(coder.text)
    else:
        made = library.Tokenizer.from_str(json.dumps(_whole(coder, lower, normal)))
    if frame:
        names = {role: (made.id_to_token(number), number) for role, number in frame.items()}
        single = [
            names[role][0] if role in names else role for role in ("begin", "$A", "end") if role in {"$A", *names}
        ]
        made.post_processor = library.processors.TemplateProcessing(single=single, special_tokens=list(names.values()))
    text: str = made.to_str(pretty=True)
    return text


def _whole(coder: Coder, lower: bool, normal: str) -> dict[str, Any]:
    """A vocabulary without subwords in the form of a tokenizer.json."""
    described = coder.described()
    names = {number: name for name, number in described["model"]["vocab"].items()}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": number, "content": names[number], **flags} for number in sorted(set(coder.specials.values()))]
    steps = ([] if normal == "none" else [{"type": normal.upper()}]) + ([{"type": "Lowercase"}] if lower else [])
    whole: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    whole |= {"normalizer": {"type": "Sequence", "normalizers": steps} if steps else None}
    return whole | {"pre_tokenizer": None, "post_processor": None, "decoder": None} | described
