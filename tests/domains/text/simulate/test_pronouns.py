import numpy as np
import pytest

from sciformer.domains.text.simulate.pronouns import (
    ADJECTIVES,
    DATIVE,
    DETERMINERS,
    NOMINATIVE,
    NOUNS,
    PERSONS,
    PREPOSITIONS,
    PRONOUNS,
    VERBS,
    Pronouns,
    inflect_adjective,
)

TABLE = Pronouns(number=3000, seed=2).make()
GENDER = {noun.de: noun.gender for noun in [*NOUNS, *PERSONS]}


@pytest.mark.parametrize(
    ("determiner", "forms"),
    [("your", ("alten", "alte", "altes")), ("a", ("alten", "alte", "altes")), ("this", ("alten", "alte", "alte"))],
)
def test_adjectives_are_declined(determiner, forms):
    assert tuple(inflect_adjective("alt", determiner, gender) for gender in "mfn") == forms


def test_the_pronoun_agrees_with_the_object():
    english, forms = {noun.en: noun for noun in NOUNS}, {word[0]: dict(zip("mfn", word[1:])) for word in DETERMINERS}
    stems, attributes = dict(ADJECTIVES), 0
    for n in range(len(TABLE["en"])):
        noun, words = english[TABLE["noun"][n]], TABLE["de"][n].split()
        en, de = TABLE["en"][n].split(), words[: words.index(",")]
        en = en[: en.index(",")]
        assert (en[-1], de[-1]) == (noun.en, noun.de)
        if en[-2] in stems:
            assert de[-2] == inflect_adjective(stems[en.pop(-2)], en[-2], noun.gender)
            attributes += de.pop(-2) != ""
        assert de[-2] == forms[en[-2]][noun.gender]
        assert words[TABLE["place"][n]] == TABLE["pronoun"][n] == PRONOUNS[noun.gender]
        assert words[TABLE["place"][n] - 1] in (",", "und", "weil")
    assert 1200 < attributes < 1800


def test_articles_agree_everywhere_else():
    where = {german for _, german in PREPOSITIONS}
    cases = {**dict.fromkeys(where, DATIVE), "sagt": NOMINATIVE}
    words = [text.split() for text in TABLE["de"]]
    triples = [triple for text in words for triple in zip(text, text[1:], text[2:]) if triple[0] in cases]
    assert all(article == cases[before][GENDER[noun]] for before, article, noun in triples)
    assert sum(before in where for before, *_ in triples) > 10_000


def test_the_verb_is_in_the_second_place():
    finite = {form for verb in VERBS for form in verb[2:]}
    assert all(text.split()[1] in finite for text in TABLE["de"])
    late = [text.split() for text in TABLE["de"] if " weil " in text]
    assert len(late) > 500
    assert all(words[-2] in ("ist", "war") for words in late)


def test_distance_is_counted_in_words():
    for en, distance, noun in zip(TABLE["en"], TABLE["distance"], TABLE["noun"]):
        words = [word for word in en.split() if word not in (",", "and", "because")]
        first = words.index(noun)
        assert len(words) - 1 - words[::-1].index("it") - first - 1 == distance
    distances, counts = np.unique(TABLE["distance"], return_counts=True)
    assert distances.tolist() == list(range(0, 40, 3))
    assert abs(counts - 3000 / 14).max() < 60
    for farthest, found in ((8, {0, 3, 6}), (2, {0})):
        assert set(Pronouns(number=200, farthest=farthest).make()["distance"].tolist()) == found


def test_the_nearest_noun_does_not_tell():
    english = {noun.en: PRONOUNS[noun.gender] for noun in NOUNS}
    assert [list(english.values()).count(pronoun) for pronoun in ("er", "sie", "es")] == [16, 16, 16]
    far = TABLE["distance"] > 3
    nearest = np.array([english[pair.split()[1]] for pair in TABLE["pair"][far]])
    assert abs((nearest == TABLE["pronoun"][far]).mean() - 1 / 3) < 0.04


def test_sentences_to_be_read():
    table = Pronouns(number=40, farthest=6).make()
    pairs = dict(zip(table["en"], table["de"]))
    shown = {
        "here i find a tree , says the aunt under the book , it was famous .": "hier finde ich einen baum , "
        "sagt die tante unter dem buch , er war berühmt .",
        "now peter sells her cup , because it was really wonderful .": "jetzt verkauft peter ihre tasse , "
        "weil sie wirklich wunderbar war .",
        "she needs the black car , says the teacher , because it was really great .": "sie braucht das schwarze auto , "
        "sagt der lehrer , weil es wirklich toll war .",
        "often anna has our picture , it was big .": "oft hat anna unser bild , es war groß .",
    }
    assert {en: pairs.get(en) for en in shown} == shown
