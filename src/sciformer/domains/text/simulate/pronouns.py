"""Pronoun translation: English «it» becomes German er, sie or es.

    i like your old dog , says the man behind the church , it is very big .
    ich mag deinen alten hund , sagt der mann hinter der kirche , er ist sehr groß .

Grammar: «it» in the last clause always refers to the object of the first clause. Between the two clauses are up to
thirteen groups of three words: the speaker («says the man»), then places («behind the church»). Nouns of places come
from the same list as the object. Neither the nearest noun nor a list of words therefore gives the answer. No other noun
can be the referent: persons are not «it», and places only locate the speaker. An optional adverb and adjective vary the
position of the object. The German is correct in case, gender and word order, but not always meaningful.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from ....data.columns import Table
from ....data.readers.simulation import SimulatedTable
from ....data.readers.text_parts import strings
from ....data.source import Data
from ....data.split import Split
from ..readers.pairs import Parallel

GENDERS = ("m", "f", "n")
PRONOUNS = {"m": "er", "f": "sie", "n": "es"}
WORDS_PER_GROUP = 3  # number of words in a group between noun and pronoun


class Noun(NamedTuple):
    """English noun and its German translation, with the German gender."""

    en: str
    de: str
    gender: str


def _split_pairs(text: str) -> list[tuple[str, ...]]:
    return [tuple(word.split("/")) for word in text.split()]


def _nouns(by_gender: dict[str, str]) -> list[Noun]:
    return [Noun(en, de, gender) for gender, text in by_gender.items() for en, de in _split_pairs(text)]


_NOUNS = {
    "m": "dog/hund tree/baum garden/garten table/tisch chair/stuhl coat/mantel hat/hut key/schlüssel tower/turm "
    "park/park river/fluss apple/apfel train/zug letter/brief ring/ring mountain/berg",
    "f": "cat/katze church/kirche bridge/brücke lamp/lampe door/tür flower/blume bag/tasche clock/uhr bottle/flasche "
    "newspaper/zeitung school/schule street/straße jacket/jacke cup/tasse guitar/gitarre island/insel",
    "n": "house/haus book/buch car/auto picture/bild bicycle/fahrrad boat/boot ship/schiff window/fenster horse/pferd "
    "glass/glas dress/kleid bed/bett shirt/hemd knife/messer village/dorf piano/klavier",
}
NOUNS = _nouns(_NOUNS)
_PERSONS = {
    "m": "man/mann teacher/lehrer baker/bäcker son/sohn",
    "f": "woman/frau singer/sängerin aunt/tante daughter/tochter",
    "n": "child/kind girl/mädchen",
}
PERSONS = _nouns(_PERSONS)
# English, German, and verb form: 0 ich, 1 du, 2 er, 3 wir and sie (plural).
SUBJECTS = [("i", "ich", 0), ("you", "du", 1), ("he", "er", 2), ("she", "sie", 2), ("we", "wir", 3), ("they", "sie", 3)]
SUBJECTS += [("anna", "anna", 2), ("peter", "peter", 2)]
# English forms of I and he, German forms of ich, du, er, wir.
VERBS = _split_pairs(
    "like/likes/mag/magst/mag/mögen love/loves/liebe/liebst/liebt/lieben see/sees/sehe/siehst/sieht/sehen "
    "know/knows/kenne/kennst/kennt/kennen buy/buys/kaufe/kaufst/kauft/kaufen "
    "need/needs/brauche/brauchst/braucht/brauchen find/finds/finde/findest/findet/finden "
    "paint/paints/male/malst/malt/malen have/has/habe/hast/hat/haben sell/sells/verkaufe/verkaufst/verkauft/verkaufen"
)
# English, and German accusative: masculine, feminine, neuter.
DETERMINERS = _split_pairs(
    "my/meinen/meine/mein your/deinen/deine/dein his/seinen/seine/sein her/ihren/ihre/ihr our/unseren/unsere/unser "
    "a/einen/eine/ein the/den/die/das this/diesen/diese/dieses"
)
STRONG_DETERMINERS = ("the", "this")  # they show the gender, so the adjective has a weak ending
ADVERBS = _split_pairs("today/heute often/oft now/jetzt here/hier")
ADJECTIVES = _split_pairs("old/alt new/neu small/klein red/rot green/grün white/weiß black/schwarz round/rund")
PREDICATES = _split_pairs(
    "great/toll big/groß beautiful/schön good/gut expensive/teuer heavy/schwer famous/berühmt wonderful/wunderbar "
    "strange/seltsam important/wichtig"
)
DEGREE_ADVERBS = _split_pairs("very/sehr really/wirklich")
CONJUNCTIONS = [("", ""), ("and", "und"), ("because", "weil")]
PREPOSITIONS = _split_pairs("behind/hinter beside/neben under/unter with/mit on/auf before/vor")
NOMINATIVE = {"m": "der", "f": "die", "n": "das"}
DATIVE = {"m": "dem", "f": "der", "n": "dem"}


def inflect_adjective(stem: str, determiner: str, gender: str) -> str:
    """German adjective with its ending before a noun in the accusative."""
    return stem + {"m": "en", "f": "e", "n": "e" if determiner in STRONG_DETERMINERS else "es"}[gender]


def make_sentence(groups: int, rng: np.random.Generator) -> dict[str, Any]:
    """Draw a sentence pair with `groups` groups of words between the noun and «it»."""
    drawn = iter(rng.random(16 + 2 * groups).tolist())

    def one(of: Sequence[Any]) -> Any:
        return of[int(next(drawn) * len(of))]

    def maybe(of: Sequence[Any]) -> Any:
        return one(of) if next(drawn) < 0.5 else None

    noun: Noun = one(NOUNS)
    subject, verb, determiner, said = one(SUBJECTS), one(VERBS), one(DETERMINERS), one(PREDICATES)
    adverb, attribute, degree = maybe(ADVERBS), maybe(ADJECTIVES), maybe(DEGREE_ADVERBS)
    place = GENDERS.index(noun.gender)
    en = [subject[0], verb[1] if subject[2] == 2 else verb[0], determiner[0]]
    de = [subject[1], verb[2 + subject[2]]]
    if adverb:  # German keeps the verb in second position
        en, de = [adverb[0], *en], [adverb[1], *de[::-1]]
    de.append(determiner[1 + place])
    if attribute:
        en.append(attribute[0])
        de.append(inflect_adjective(attribute[1], determiner[0], noun.gender))
    en, de, nearest = [*en, noun.en], [*de, noun.de], ""
    if groups:
        other = one(PERSONS)
        en += [",", "says", "the", other.en]
        de += [",", "sagt", NOMINATIVE[other.gender], other.de]
    for _ in range(groups - 1):
        other, where = one(NOUNS), one(PREPOSITIONS)
        en += [where[0], "the", other.en]
        de += [where[1], DATIVE[other.gender], other.de]
        nearest = other.en
    joint, was = one(CONJUNCTIONS), one([("is", "ist"), ("was", "war")])
    more = [[degree[side]] if degree else [] for side in (0, 1)]
    pronoun = PRONOUNS[noun.gender]
    en += [",", *joint[0].split(), "it", was[0], *more[0], said[0], "."]
    de += [",", *joint[1].split(), pronoun]
    de += [*more[1], said[1], was[1], "."] if joint[0] == "because" else [was[1], *more[1], said[1], "."]
    return {
        "en": " ".join(en),
        "de": " ".join(de),
        "distance": WORDS_PER_GROUP * groups,
        "pronoun": pronoun,
        "place": len(de) - 1 - de[::-1].index(pronoun),
        "noun": noun.en,
        "pair": f"{noun.en} {nearest or said[0]}",
    }


class Pronouns(SimulatedTable):
    """Pairs of sentences with the referent of their pronoun.

    en, de    the sentences
    distance  words between noun and pronoun: 0, 3, 6, ..., uniformly distributed
    pronoun   er, sie or es
    place     index of the pronoun among the German words, from 0
    noun      English noun referred to by «it»
    pair      `noun` and the last noun before «it» (or the predicate adjective, if there is no other noun); test
              sentences have other pairs than training sentences
    """

    noun: ClassVar[str] = "sentences"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    number: int = Field(default=20_000, ge=3, le=10**10)
    """Number of sentence pairs (default: 20,000)."""
    farthest: int = Field(default=39, ge=0, le=1 << 20)
    """Maximum number of words between noun and pronoun (default: 39)."""
    split: Split = Split(valid=0.05, test=0.15, by="pair")
    """Fractions for validation and test (default: 0.05 and 0.15), split by `pair`."""

    def make(self) -> Table:
        rng = np.random.default_rng(self.seed)
        groups = rng.integers(self.farthest // WORDS_PER_GROUP + 1, size=self.number)
        rows = [make_sentence(int(count), rng) for count in groups]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        texts = {name: strings(columns.pop(name)) for name in ("en", "de")}
        return {**texts, **{name: np.array(column) for name, column in columns.items()}}

    def describe(self) -> str:
        return f"pronouns up to {self.farthest} words away, {self.number} sentences, seed {self.seed}"

    def file_reader(self) -> Data:
        """Reader of English sentences, with an optional German translation after a tab."""
        return Parallel(kind="parallel", columns=["en", "de"])
