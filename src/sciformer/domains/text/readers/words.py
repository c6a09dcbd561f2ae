"""Rule for splitting running text into words, learned from tagged training files.

    rule = WordRule.learn(["I", "'m", "in", "the", "U.S.", "."])
    rule.split("I'm in Rome.")              [(0, 1), (1, 3), (4, 6), (7, 11), (11, 12)]

Words never contain blanks. Punctuation marks and other signs at the ends of a word are separate words if they are
usually separate in the training files. Some signs inside a word are treated in the same way.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, Self

PLACES = ("before", "after", "inside")
ATTACHED_BY_DEFAULT = {"before": "@#$€£¥&+-/\\_~*%°=<^", "after": "@#$€£¥&+-/\\_~*%°=^"}
APART_BY_DEFAULT = {"inside": ',;!?()[]{}"“”„«»<>|…。，、；！？：「」『』（）《》'}
APOSTROPHES = "'’"
LINK = re.compile(r"[a-z]+://\S+|www\.\S+|\S+@\S+\.\S+|&#?\w+;", re.IGNORECASE)  # also names of characters: &amp;
CLITIC = re.compile(rf"[{APOSTROPHES}][^\W\d_]{{1,3}}|n[{APOSTROPHES}]t|[^\W\d_]{{1,6}}[{APOSTROPHES}]", re.IGNORECASE)
MIN_CLITICS = 3  # number of occurrences to learn a clitic
MIN_SIGNS = 20  # separate occurrences of a sign, to learn that it is never inside of a word
MAX_SHARE_INSIDE = 0.05  # a sign splits words if a smaller share of its occurrences is inside of words
MAX_WHOLE_WORDS = 5000  # words with signs that are stored
Range = tuple[int, int]
"""First character of a word, and the character after it."""


@lru_cache(maxsize=1 << 16)
def is_sign(character: str) -> bool:
    """Whether a character is a punctuation mark or another sign."""
    return unicodedata.category(character)[0] in "PS"


@lru_cache(maxsize=1 << 16)
def _is_unspaced_letter(character: str) -> bool:
    """Whether a character is a letter without upper case, as in Chinese and Thai."""
    return unicodedata.category(character) == "Lo"


@dataclass(frozen=True)
class WordRule:
    """Rule for splitting text into words.

    apart      signs that are separate words, by their place in a word (before, after, inside)
    attached   signs that belong to the word, by their place; all other signs follow a default
    clitics    endings and beginnings that are separate words: n't, 's, l'
    whole      words with signs that are not split: U.S.
    letters    whether each letter of a script without upper case (Chinese, Thai) is a word
    """

    apart: Mapping[str, str] = field(default_factory=dict)
    attached: Mapping[str, str] = field(default_factory=dict)
    clitics: tuple[str, ...] = ()
    whole: frozenset[str] = frozenset()
    letters: bool = False

    @classmethod
    def learn(cls, words: Iterable[str]) -> Self:
        """Learn the rule from the words of tagged sentences."""
        counts = Counter(words)
        alone, places, clitics = Counter[str](), {place: Counter[str]() for place in PLACES}, Counter[str]()
        unspaced = Counter[bool]()
        for word, count in counts.items():
            if len(set(word)) == 1 and is_sign(word[0]):
                alone[word[0]] += count
            elif CLITIC.fullmatch(word):
                clitics[word.lower()] += count
            elif not LINK.fullmatch(word) and any(map(str.isalnum, word)):
                _count_signs(word, count, places)
            if any(map(_is_unspaced_letter, word)):
                unspaced[len(word) == 1] += count
        apart, attached = {}, {}
        for place, found in places.items():
            signs = sorted({*alone, *found})
            if place == "inside":
                signs = [sign for sign in signs if sign != "." and (found[sign] or alone[sign] >= MIN_SIGNS)]
                split = {sign for sign in signs if found[sign] < MAX_SHARE_INSIDE * alone[sign]}
            else:
                split = {sign for sign in signs if found[sign] <= alone[sign]}
            apart[place] = "".join(sign for sign in signs if sign in split)
            attached[place] = "".join(sign for sign in signs if sign not in split)
        endings = _count_clitics(counts, clitics)
        split_off = [one for one in clitics if clitics[one] >= max(MIN_CLITICS, endings[one])]
        kept = tuple(sorted(split_off, key=lambda one: (-len(one), one)))
        rule = cls(apart, attached, kept, letters=unspaced[True] > 9 * unspaced[False])
        return cls(apart, attached, kept, rule._whole_words(counts), rule.letters)

    def _whole_words(self, counts: Counter[str]) -> frozenset[str]:
        """Find the most frequent words among the words split wrongly by the rule.

        A word such as `end.` is left out if `end` is more frequent, because `end.` is then a mistake in the files.
        """
        found = Counter[str]()
        for word, count in counts.items():
            pieces = [word[start:stop] for start, stop in self.split(word)]
            core = max(pieces, key=len)
            mistake = len(core) > 1 and core.isalnum() and count < counts[core]
            if len(pieces) > 1 and "".join(pieces) == word and not mistake:
                found[word] = count
        return frozenset(word for word, _ in sorted(found.items(), key=lambda one: (-one[1], one[0]))[:MAX_WHOLE_WORDS])

    def to_json(self) -> dict[str, Any]:
        """Convert the rule to plain JSON."""
        return {**asdict(self), "clitics": list(self.clitics), "whole": sorted(self.whole)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Restore a rule from plain JSON."""
        return cls(**{**values, "clitics": tuple(values["clitics"]), "whole": frozenset(values["whole"])})

    def split(self, text: str) -> list[Range]:
        """Character ranges of the words in a text, in order."""
        return [
            (chunk.start() + start, chunk.start() + stop)
            for chunk in re.finditer(r"\S+", text)
            for start, stop in self._split_chunk(chunk[0])
        ]

    def _split_chunk(self, chunk: str) -> list[Range]:
        """Split a text without blanks into signs before, words of the core, signs after."""
        start, stop = 0, len(chunk)
        head, tail = list[Range](), list[Range]()
        while start < stop and (core := chunk[start:stop]) not in self.whole:
            before, after = len(core) - len(core.lstrip(core[0])), len(core) - len(core.rstrip(core[-1]))
            if before < len(core) and self._is_apart(core[0], "before"):
                head.append((start, start + before))
                start += before
            elif after < len(core) and self._is_apart(core[-1], "after"):
                tail.append((stop - after, stop))
                stop -= after
            else:
                break
        core = chunk[start:stop]
        inner = [(0, len(core))] if core in self.whole or LINK.fullmatch(core) else self._split_core(core)
        return [*head, *((start + low, start + high) for low, high in inner), *reversed(tail)]

    def _split_core(self, core: str) -> list[Range]:
        """Split a word at clitics and at punctuation inside the word.

        The punctuation at both ends has been removed before. With `letters`, each letter of a script without upper case
        (Chinese, Thai) is a word.
        """
        lowered = core.lower()
        for one in self.clitics:
            if len(one) < len(core) == len(lowered):
                if lowered.endswith(one) and one[-1] not in APOSTROPHES:
                    cut = len(core) - len(one)
                elif lowered.startswith(one) and one[-1] in APOSTROPHES:
                    cut = len(one)
                else:
                    continue
                left, right = self._split_chunk(core[:cut]), self._split_chunk(core[cut:])
                return [*left, *((low + cut, high + cut) for low, high in right)] if cut else right
        cuts = {0, len(core)}
        for place, sign in enumerate(core):
            if self.letters and _is_unspaced_letter(sign):
                cuts |= {place, place + 1}
            elif 0 < place < len(core) - 1 and self._is_apart(sign, "inside") and not _between_digits(core, place):
                cuts |= ({place} if core[place - 1] != sign else set()) | (
                    {place + 1} if core[place + 1] != sign else set()
                )
        ends = sorted(cuts)
        return list(pairwise(ends))

    def _is_apart(self, sign: str, place: str) -> bool:
        if not is_sign(sign):
            return False
        if sign in self.apart.get(place, "") or sign in self.attached.get(place, ""):
            return sign in self.apart.get(place, "")
        return sign in APART_BY_DEFAULT[place] if place == "inside" else sign not in ATTACHED_BY_DEFAULT[place]


def _count_signs(word: str, count: int, places: Mapping[str, Counter[str]]) -> None:
    """Count the signs of a word, by their place in the word."""
    if is_sign(word[0]):
        places["before"][word[0]] += count
    if is_sign(word[-1]):
        places["after"][word[-1]] += count
    inside = {sign for place, sign in enumerate(word[1:-1], 1) if is_sign(sign) and not _between_digits(word, place)}
    for sign in inside:
        places["inside"][sign] += count


def _count_clitics(counts: Counter[str], clitics: Iterable[str]) -> Counter[str]:
    known, found = {*clitics}, Counter[str]()
    for word, count in counts.items():
        lowered = word.lower()
        for size in range(2, min(8, len(word))):
            for part in {lowered[-size:], lowered[:size]} & known:
                ending = part[-1] not in APOSTROPHES
                found[part] += count if (lowered.endswith(part) if ending else lowered.startswith(part)) else 0
    return found


def _between_digits(word: str, place: int) -> bool:
    return 0 < place < len(word) - 1 and word[place - 1].isdigit() and word[place + 1].isdigit()
