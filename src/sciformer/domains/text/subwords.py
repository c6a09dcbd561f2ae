"""Subwords of the package `tokenizers`: learned, or read from a tokenizer.json."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...data.columns import Array
from ...errors import UserError
from ...files.packages import require
from .unigram import learn_pieces
from .vocabulary import VISIBLE_BLANKS, Coder, Encoded, TokenNames

TOKENIZER_FILE = "tokenizer.json"
MAX_BATCH_TEXTS, MAX_BATCH_CHARACTERS = 1000, 1 << 18  # maximum texts and characters of a batch to encode
PREFIX_SPACE_PATTERN = {"Regex": r"\A (?=[\n\r\t])"}  # added space before a line break at the beginning
PARALLELISM_VARIABLE = "TOKENIZERS_PARALLELISM"
_SET_VARIABLES: set[str] = set()  # variables set here, not by the user
USUAL_TOKEN_NAMES = {  # names of special tokens in foreign files, by role; the first name found is used
    "padding": ("[PAD]", "<pad>", "<|padding|>", "<|pad|>"),
    "unknown": ("[UNK]", "<unk>"),
    "begin": ("[CLS]", "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("[SEP]", "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
    "separator": ("<sep>", "[SEP]", "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
}


def tokenizers_package() -> Any:
    """Import the package `tokenizers` of Hugging Face."""
    return require("tokenizers", "subwords")


class Subwords(Coder):
    """Vocabulary of subwords, from a tokenizer.json.

    Texts are encoded without the special tokens that a tokenizer.json adds at their ends.
    """

    def __init__(self, text: str, names: TokenNames, learned: bool) -> None:
        """Load a tokenizer.json.

        text     contents of the file
        names    (role, name) of the special tokens
        learned  whether the tokenizer was learned here; names of special tokens inside texts are then plain text
        """
        self.text, self.learned = text, learned
        load = tokenizers_package().Tokenizer.from_str
        try:
            self.tokenizer = load(text)
        except Exception as error:
            raise UserError(
                f"the tokenizer is not a valid Hugging Face tokenizer.json: {error}", key="tokens.tokenizer"
            ) from error
        _set_rules(self.tokenizer, learned)
        self.numbers: dict[str, int] = self.tokenizer.get_vocab(with_added_tokens=True)
        self.size = max(self.numbers.values(), default=-1) + 1
        added = self.tokenizer.get_added_tokens_decoder()
        self.names = {number: token.content for number, token in added.items() if token.special}
        self.specials = self._roles(dict(names), {token.content: number for number, token in added.items()}, text)

    def _roles(self, names: dict[str, str], added: dict[str, int], text: str) -> dict[str, int]:
        roles = {}
        for role, usual in USUAL_TOKEN_NAMES.items():
            if role in names:
                if names[role] not in self.numbers:
                    raise UserError(
                        f"the {role} token {names[role]!r} is not in the vocabulary",
                        hint=f"Set tokens.special.{role} to a token of the vocabulary.",
                        key=f"tokens.special.{role}",
                    )
                roles[role] = self.numbers[names[role]]
            elif found := [name for name in usual if name in added]:
                roles[role] = added[found[0]]
        if "unknown" not in roles:
            model = json.loads(text)["model"]
            if (number := self.numbers.get(model.get("unk_token"), model.get("unk_id"))) is not None:
                roles["unknown"] = number
        return roles

    @cached_property
    def writable(self) -> Array:
        """Mask (size,) of the ids of text: in use, and not special tokens."""
        found = np.zeros(self.size, bool)
        found[list(self.numbers.values())] = True
        found[[*self.specials.values(), *self.names]] = False
        return found

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode texts, long texts in parts.

        Encoding takes about 200 times the memory of the text.
        """
        long = [len(text) > MAX_BATCH_CHARACTERS and self.cuts for text in texts]
        parts = [cut_text(text) if cut else [text] for text, cut in zip(texts, long)]
        made = self._encode_batches(self.tokenizer, [first for first, *_ in parts])
        for number, (_, *rest) in enumerate(parts):
            if rest:
                made[number] = _join_encoded([made[number], *self._encode_batches(self.onward, rest)])
        return made

    def encode_words(self, texts: Sequence[Sequence[str]]) -> list[Encoded]:
        """Encode texts given as lists of words, word by word.

        A word that is empty after normalisation has no token.
        """
        return self._encode_batches(self.tokenizer, [list(words) for words in texts], split=True)

    def _encode_batches(self, tokenizer: Any, texts: list[Any], split: bool = False) -> list[Encoded]:
        made: list[Encoded] = []
        for part in text_batches(texts):
            try:
                with all_threads():
                    encoded = tokenizer.encode_batch(part, is_pretokenized=split, add_special_tokens=False)
            except Exception as error:  # the package raises plain exceptions
                raise UserError(
                    f"the tokenizer cannot read a text: {error}",
                    hint="Add an unknown token to the vocabulary in its file.",
                    key="tokens.tokenizer",
                ) from error
            for one in encoded:
                word = [-1 if number is None else number for number in one.word_ids]
                made.append((np.array(one.ids, np.int32), np.array(word, np.int32)))
        return made

    @cached_property
    def onward(self) -> Any:
        """Tokenizer without an added space at the start, for later parts of a long text."""
        rules = json.loads(self.text)
        steps = (rules.get("normalizer") or {}).get("normalizers", [])
        steps[:] = [step for step in steps if step["type"] != "Prepend" and step.get("pattern") != PREFIX_SPACE_PATTERN]
        made = tokenizers_package().Tokenizer.from_str(json.dumps(rules))
        _set_rules(made, self.learned)
        return made

    @cached_property
    def cuts(self) -> bool:
        """Whether a text can be cut before a space without a change of its tokens.

        This is tested on a few examples.
        """
        probes = [("a", " b"), ("Ab, 1.", " cd\n ef"), ("x", "  ab\n"), ("x\ny", " ' 12")]

        def ids(coder: Any, text: str) -> list[int]:
            return coder.encode(text, add_special_tokens=False).ids

        return all(ids(self.tokenizer, a) + ids(self.onward, b) == ids(self.tokenizer, a + b) for a, b in probes)

    def decode(self, ids: Array) -> str:
        kept = ids[(ids >= 0) & (ids < self.size)]  # larger ids are padding of the vocabulary
        kept = kept[self.writable[kept] | (kept == self.specials.get("unknown", -1))]
        return self.tokenizer.decode(kept.tolist(), skip_special_tokens=False)

    def display_tokens(self, ids: Array, word: Array | None) -> list[str]:
        """Subwords without space marks.

        Later subwords of a word begin with `·`, or with the `##` of WordPiece.
        """
        special = {*self.specials.values(), *self.names}
        found = []
        for place, number in enumerate(ids.tolist()):
            name = self.tokenizer.id_to_token(number) or ""  # padding of the vocabulary has no name
            if name and number not in special:
                goes_on = word is not None and place > 0 and word[place] == word[place - 1] >= 0
                name = self._piece(number, name, goes_on)
            found.append(name)
        return found

    def _piece(self, number: int, name: str, goes_on: bool) -> str:
        text = self.tokenizer.decode([number], skip_special_tokens=False)
        if "\ufffd" in text:  # an incomplete character
            return name
        text = text.removeprefix(" ") or " "
        text = "".join(VISIBLE_BLANKS.get(letter, letter) for letter in text)
        return text if not goes_on or text.startswith("##") else "·" + text


def _set_rules(tokenizer: Any, learned: bool) -> None:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = learned


load_subwords = lru_cache(maxsize=8)(Subwords)


def read_tokenizer_text(name: str | Path) -> str:
    """Text of a tokenizer.json; `name` is the file or its folder."""
    path = Path(name).expanduser()
    path = path / TOKENIZER_FILE if path.is_dir() else path
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"the tokenizer file {path} cannot be read: {error}"
        raise UserError(message, key="tokens.tokenizer", file=path) from error


def cut_text(text: str) -> list[str]:
    """Cut a long text into parts, each before a single space."""
    found, start = [], 0
    while len(text) - start > MAX_BATCH_CHARACTERS:
        stop = text.find(" ", start + MAX_BATCH_CHARACTERS)
        while stop > 0 and text[stop - 1].isspace():
            stop = text.find(" ", stop + 1)
        if stop < 0:
            break
        found.append(text[start:stop])
        start = stop
    return [*found, text[start:]]


def _join_encoded(parts: list[Encoded]) -> Encoded:
    """Concatenate the encoded parts of a text, with continuous word indices."""
    words, count = [], 0
    for _, word in parts:
        assert word is not None
        words.append(np.where(word < 0, -1, word + count))
        count += int(word.max(initial=-1)) + 1
    return np.concatenate([ids for ids, _ in parts]), np.concatenate(words).astype(np.int32)


def text_batches(texts: list[Any]) -> Iterator[list[Any]]:
    """Divide texts into batches with a maximum number of texts and of characters."""
    found: list[Any] = []
    letters = 0
    for text in texts:
        found.append(text)
        letters += len(text)
        if len(found) >= MAX_BATCH_TEXTS or letters > MAX_BATCH_CHARACTERS:
            yield found
            found, letters = [], 0
    if found:
        yield found


@contextmanager
def all_threads() -> Iterator[None]:
    """Let `tokenizers` use all cores.

    A worker process uses a single core. If the user has set TOKENIZERS_PARALLELISM, its value stays.
    """
    if PARALLELISM_VARIABLE in os.environ and not _SET_VARIABLES:
        yield
        return
    _SET_VARIABLES.add(PARALLELISM_VARIABLE)
    os.environ[PARALLELISM_VARIABLE] = "true" if multiprocessing.parent_process() is None else "false"
    try:
        yield
    finally:
        os.environ[PARALLELISM_VARIABLE] = "false"  # set explicitly, because the package warns at a fork otherwise


def export_tokenizer(coder: Coder, frame: dict[str, int], lower: bool, normal: str) -> str:
    """Write the rules of a coder as text of a tokenizer.json.

    frame  ids of the begin and end token added to each text, by role
    """
    library = tokenizers_package()
    if isinstance(coder, Subwords):
        if not coder.learned:
            return coder.text
        made = library.Tokenizer.from_str(coder.text)
    else:
        made = library.Tokenizer.from_str(json.dumps(_export_vocabulary(coder, lower, normal)))
    if frame:
        names = {role: made.id_to_token(number) for role, number in frame.items()}
        single = [name for name in (names.get("begin"), "$A", names.get("end")) if name]
        numbers = [(names[role], number) for role, number in frame.items()]
        made.post_processor = library.processors.TemplateProcessing(single=single, special_tokens=numbers)
    return made.to_str(pretty=True)


def _export_vocabulary(coder: Coder, lower: bool, normal: str) -> dict[str, Any]:
    described = coder.tokenizer_parts()
    names = {number: name for name, number in described["model"]["vocab"].items()}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": number, "content": names[number], **flags} for number in sorted(set(coder.specials.values()))]
    steps = ([] if normal == "none" else [{"type": normal.upper()}]) + ([{"type": "Lowercase"}] if lower else [])
    whole: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    whole |= {"normalizer": {"type": "Sequence", "normalizers": steps} if steps else None}
    return whole | {"pre_tokenizer": None, "post_processor": None, "decoder": None} | described


# Learning subwords; deterministic for the same texts


TextBatches = Iterator[list[str]]
MAX_ALPHABET = 1000  # most frequent characters kept by WordPiece (BERT); words with other characters are unknown


def learn_tokenizer(
    unit: str, texts: Iterable[list[str]], size: int, minimum: int, names: TokenNames, lower: bool, normal: str
) -> str:
    """Learn a tokenizer of at most `size` tokens, as text of a tokenizer.json.

    texts    batches of texts, read once
    minimum  minimum frequency of a pair to be merged, at least 2
    names    (role, name) of the special tokens
    """
    special, unknown = list(dict.fromkeys(name for _, name in names)), dict(names)["unknown"]
    made, found, library = _untrained_tokenizer(unit, lower, normal, unknown), _check_texts(texts), tokenizers_package()
    options = {"vocab_size": size, "min_frequency": max(2, minimum), "show_progress": False}
    with all_threads():
        if unit == "bpe":
            letters = sorted(library.pre_tokenizers.ByteLevel.alphabet())
            _check_size(size, len(letters) + len(special), "all bytes and special tokens")
            trainer = library.trainers.BpeTrainer(initial_alphabet=letters, special_tokens=special, **options)
            made.train_from_iterator(found, trainer)
        elif unit == "wordpiece":
            made.model = library.models.WordPiece(_learn_word_pieces(made, found, special, options), unk_token=unknown)
        else:  # other special tokens follow the pieces: a piece would also match inside texts
            pieces = learn_pieces(_count_words(made, found), max(1, size - len(special)))
            made.model = library.models.Unigram([(unknown, 0.0), *pieces], 0, False)
    made.add_special_tokens(special)
    return made.to_str()


def _check_texts(texts: Iterable[list[str]]) -> TextBatches:
    """Yield batches of texts cut into short parts; refuse empty data."""
    letters = 0
    for some in texts:
        letters += sum(len(text.strip()) for text in some)
        yield [part for text in some for part in cut_text(text)]
    if not letters:
        raise UserError("the training data have no text to learn a vocabulary from")


def _learn_word_pieces(made: Any, texts: TextBatches, special: list[str], options: dict[str, Any]) -> dict[str, int]:
    library, counts = tokenizers_package(), _count_words(made, texts)
    letters: Counter[str] = Counter()
    for word, times in counts.items():
        letters.update({letter: times * number for letter, number in Counter(word).items()})
    kept = set(sorted(letters, key=lambda letter: (-letters[letter], letter))[:MAX_ALPHABET])
    words = sorted(word for word in counts if kept.issuperset(word))
    inner = sorted({f"##{letter}" for word in words for letter in word[1:]})
    _check_size(options["vocab_size"], len(special) + len(kept) + len(inner), "all letters and special tokens")
    trained = library.Tokenizer(library.models.WordPiece(unk_token=special[0]))
    trained.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    trainer = library.trainers.WordPieceTrainer(special_tokens=[*special, *inner], **options)
    trained.train_from_iterator((" ".join([word] * counts[word]) for word in words), trainer)
    return json.loads(trained.to_str())["model"]["vocab"]


def _count_words(made: Any, texts: TextBatches) -> Counter[str]:
    """Count the words of the texts, by the rules of a tokenizer."""
    counts: Counter[str] = Counter()
    for some in texts:
        for text in some:
            counts.update(word for word, _ in made.pre_tokenizer.pre_tokenize_str(made.normalizer.normalize_str(text)))
    return counts


def _check_size(size: int, least: int, what: str) -> None:
    if size < least:
        message = f"tokens.vocabulary must be {least} or more to hold {what}, not {size}"
        raise UserError(message, key="tokens.vocabulary")


def _untrained_tokenizer(unit: str, lower: bool, normal: str, unknown: str) -> Any:
    library = tokenizers_package()
    steps = {"none": [], "nfc": [library.normalizers.NFC()], "nfkc": [library.normalizers.NFKC()]}[normal]
    steps += [library.normalizers.Lowercase()] if lower else []
    if unit == "wordpiece":
        made = library.Tokenizer(library.models.WordPiece(unk_token=unknown))
        steps += [library.normalizers.BertNormalizer(strip_accents=False, lowercase=False)]
        made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        made.decoder = library.decoders.WordPiece(prefix="##")
    else:
        # Add a space before each text, so its first word gets the same token as elsewhere; not before a line break.
        pattern = library.Regex(PREFIX_SPACE_PATTERN["Regex"])
        steps += [library.normalizers.Prepend(" "), library.normalizers.Replace(pattern, "")]
        made = library.Tokenizer(library.models.BPE() if unit == "bpe" else library.models.Unigram())
        if unit == "bpe":
            made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
            decoder = library.decoders.ByteLevel()
        else:
            lines = library.pre_tokenizers.Split("\n", "isolated")
            blanks = library.pre_tokenizers.Metaspace(prepend_scheme="never")
            made.pre_tokenizer = library.pre_tokenizers.Sequence([lines, blanks])
            decoder = library.decoders.Metaspace(prepend_scheme="never")
        made.decoder = library.decoders.Sequence([decoder, library.decoders.Fuse(), library.decoders.Strip(" ", 1, 0)])
    made.normalizer = library.normalizers.Sequence(steps)
    return made
