"""Running text, split into words as tagged files are."""

import gzip
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.domains.text.readers.words import WordRule
from tests.domains.text.readers.files import DATA as SHARED
from tests.domains.text.readers.files import shared

PENN = (
    "I 'm in the U.S. , he said ; do n't go -- it 's well-known $ 5 ( 1,000 ) film ... 's 's 's 'm 'm n't n't . . . $ ."
)
SPACED = "I'm in the U.S., he said; don't go -- it's Bob's well-known film... end. end. film. film. so, so, said; (5)"
UNIVERSAL = " ".join(["well - known and / or"] * 20)
FRENCH = "l' homme d' abord qu' il l' eau d' or l' art d' un aujourd'hui , , . ."


def split(rule, text):
    return [text[start:stop] for start, stop in rule.split(text)]


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        ("", "Ada left Rome.", "Ada left Rome ."),
        ("", 'He said: "don\'t (ever) go"...', 'He said : " don\'t ( ever ) go " ...'),
        ("", "see http://a.b/c?d=1, me@x.org!", "see http://a.b/c?d=1 , me@x.org !"),
        ("", "@ada #tag 3.5 1,000 5% $7 Rome,Paris", "@ada #tag 3.5 1,000 5% $7 Rome , Paris"),
        ("", " \t\u3000 \xa0", ""),
        (PENN, "I'm in the U.S., it's $9.", "I 'm in the U.S. , it 's $ 9 ."),
        (PENN, "Don't go: Ann's film", "Do n't go : Ann 's film"),
        (PENN, "a well-known word", "a well-known word"),
        (SPACED, "Go, Ada. Well, don't...", "Go, Ada. Well, don't..."),
        (UNIVERSAL, "a two-part and/or", "a two - part and / or"),
        (FRENCH, "l'amie, aujourd'hui.", "l' amie , aujourd'hui ."),
        ("我 爱 北 京 。 他 在 上 海 。", "我爱上海。OK", "我 爱 上 海 。 OK"),
    ],
)
def test_text_is_split_as_the_words_of_the_training_are(words, text, expected):
    rule = WordRule.learn(words.split())
    assert " ".join(split(rule, text)) == expected
    assert WordRule.from_json(rule.to_json()) == rule


def test_a_rare_mistake_of_the_training_files_is_not_learned():
    rule = WordRule.learn(["end", "."] * 20 + ["end.", "U.S.", "'", "s"] * 2)
    assert split(rule, "the end. the U.S. .") == ["the", "end", ".", "the", "U.S.", "."]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=6)), st.text(max_size=30))
def test_words_cover_everything_but_blanks(words, text):
    rule = WordRule.learn([part for word in words for part in word.split()])
    found = rule.split(text)
    assert "".join(split(rule, text)) == "".join(text.split())
    assert all(start < stop for start, stop in found)
    assert all(one[1] <= other[0] for one, other in pairwise(found))


@shared
def test_wnut17():
    with gzip.open(SHARED / "wnut17" / "train.conll.gz", "rt", encoding="utf-8") as file:
        blocks = re.split(r"\n\s*\n", file.read().strip())
    sentences = [[line.split("\t")[0] for line in block.split("\n")] for block in blocks]
    assert len(sentences) == 3394
    rule = WordRule.learn(word for words in sentences for word in words)
    assert "Rome." not in split(rule, "@ada left Rome.")
    same = [split(rule, " ".join(words)) == words for words in sentences]
    assert sum(same) > 0.95 * len(same)
