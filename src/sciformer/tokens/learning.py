"""Subwords learned from texts: the same texts always give the same vocabulary.

Byte pairs are learned by the package `tokenizers` as they are. Its other two trainers follow the order of a hash table,
another one each time: WordPiece is given its letters in order, and the unigram model is learned here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import UserError
from .tokenizer import BEFORE_LINES, cut, package, threads
from .unigram import learn_pieces
from .vocabulary import Names

Texts = Iterator[list[str]]
LETTERS = 1000  # of WordPiece, the most frequent (BERT); words with others are unknown


def learn(
    unit: str, texts: Iterable[list[str]], size: int, minimum: int, names: Names, lower: bool, normal: str
) -> str:
    """A tokenizer of at most `size` tokens, as the text of its tokenizer.json; its special tokens have these names.

    texts    in pieces, read once
    minimum  what is seen less often than this, or than twice, is not joined
    """
    special, unknown = list(dict.fromkeys(name for _, name in names)), dict(names)["unknown"]
    made = _rules(unit, lower, normal, unknown)
    learner = {"bpe": _byte_pairs, "wordpiece": _word_pieces, "unigram": _unigram}[unit]
    with threads():
        learner(made, _counted(texts), size, max(2, minimum), special, unknown)
    made.add_special_tokens(special)
    text: str = made.to_str()
    return text


def _counted(texts: Iterable[list[str]]) -> Texts:
    """The texts, of which there must be some, in parts that are not long."""
    letters = 0
    for some in texts:
        letters += sum(len(text.strip()) for text in some)
        yield [part for text in some for part in cut(text)]
    if not letters:
        raise UserError("there is no text to train on")


def _byte_pairs(made: Any, texts: Texts, size: int, minimum: int, special: list[str], unknown: str) -> None:
    library = package()
    letters = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    _room(size, len(letters) + len(special), "all bytes")
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=minimum,
        initial_alphabet=letters,
        special_tokens=special,
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)


def _word_pieces(made: Any, texts: Texts, size: int, minimum: int, special: list[str], unknown: str) -> None:
    library = package()
    counts = _words(made, texts)
    letters: Counter[str] = Counter()
    for word, times in counts.items():
        for letter in word:
            letters[letter] += times
    kept = set(sorted(letters, key=lambda letter: (-letters[letter], letter))[:LETTERS])
    words = sorted(word for word in counts if kept.issuperset(word))
    inner = sorted({f"##{letter}" for word in words for letter in word[1:]})
    _room(size, len(special) + len(kept) + len(inner), "all letters")
    trainer = library.trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=minimum, special_tokens=[*special, *inner], show_progress=False
    )
    trained = library.Tokenizer(library.models.WordPiece(unk_token=unknown))
    trained.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    trained.train_from_iterator((" ".join([word] * counts[word]) for word in words), trainer)
    model = json.loads(trained.to_str())["model"]
    made.model = library.models.WordPiece(model["vocab"], unk_token=unknown)


def _unigram(made: Any, texts: Texts, size: int, minimum: int, special: list[str], unknown: str) -> None:
    library = package()
    # The other special tokens come after the pieces, for what is among those is also found in texts.
    pieces = learn_pieces(_words(made, texts), max(1, size - len(special)))
    made.model = library.models.Unigram([(unknown, 0.0), *pieces], 0, False)


def _words(made: Any, texts: Texts) -> Counter[str]:
    """How often each word is there, by the rules of a tokenizer."""
    counts: Counter[str] = Counter()
    for some in texts:
        for text in some:
            normal = text if made.normalizer is None else made.normalizer.normalize_str(text)
            counts.update(word for word, _ in made.pre_tokenizer.pre_tokenize_str(normal))
    return counts


def _room(size: int, least: int, what: str) -> None:
    if size < least:
        raise UserError(
            f"tokens.vocabulary must be {least} or more to hold {what}, not {size}", key="tokens.vocabulary"
        )


def _rules(unit: str, lower: bool, normal: str, unknown: str) -> Any:
    """A tokenizer with its rules, but no vocabulary."""
    library = package()
    steps = {"none": [], "nfc": [library.normalizers.NFC()], "nfkc": [library.normalizers.NFKC()]}[normal]
    steps += [library.normalizers.Lowercase()] if lower else []
    if unit == "wordpiece":
        made = library.Tokenizer(library.models.WordPiece(unk_token=unknown))
        steps += [library.normalizers.BertNormalizer(strip_accents=False, lowercase=False)]
        made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        made.decoder = library.decoders.WordPiece(prefix="##")
    else:
        # Each text begins with a blank, so that a word is the same there and elsewhere; but not before a new line.
        steps += [
            library.normalizers.Prepend(" "),
            library.normalizers.Replace(library.Regex(BEFORE_LINES["Regex"]), ""),
        ]
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
    if steps:
        made.normalizer = library.normalizers.Sequence(steps)
    return made
