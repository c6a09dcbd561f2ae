"""Words with the ends of lines as tokens, as WikiText is counted."""

import numpy as np

from sciformer.domains.text.tokens import Text
from tests.errors import refuses

ONE = dict.fromkeys(("padding", "begin", "end", "mask", "separator"), "<eos>")
SAMPLE = " = A title = \n \n the cat sat on <unk> . \n the end"


def fitted(**options):
    tokens = Text(kind="text", unit="words", lines=True, **options)
    column = np.empty(1, object)
    column[0] = SAMPLE
    tokens.fit([{"text": column}])
    return tokens, tokens.tokenize({"text": column})


def test_every_end_of_a_line_is_counted():
    tokens, stream = fitted(special=ONE)
    ids, end = stream.columns["ids"], tokens.specials["end"]
    assert len(ids) == len(SAMPLE.split()) + SAMPLE.count("\n")
    assert np.flatnonzero(ids == end).tolist() == [4, 5, 12]
    assert tokens.token_labels(stream)[3:7] == ["=", "<eos>", "<eos>", "the"]
    assert ids[10] == tokens.specials["unknown"]  # the unknown word of the data is ours too
    assert tokens.size == len(set(SAMPLE.split())) + 1
    assert set(tokens.specials.values()) == {end, tokens.specials["unknown"]}


def test_the_way_back():
    for options in ({}, {"special": ONE}):
        tokens, stream = fitted(**options)
        assert tokens.decode(stream.columns["ids"]) == "= A title =\n\nthe cat sat on <unk> .\nthe end"
        assert tokens.writable[tokens.specials["end"]]
        assert tokens.encode("the\n").tolist() == [tokens.encode("the")[0], tokens.specials["end"]]
        assert tokens.encode("").tolist() == []
        assert tokens.encode("\n\n").tolist() == [tokens.specials["end"]] * 2


def test_without_it_a_line_ends_like_a_word():
    tokens = Text(kind="text", unit="words")
    tokens.fit([{"text": np.array([SAMPLE], object)}])
    assert len(tokens.encode(SAMPLE)) == len(SAMPLE.split())
    assert not tokens.writable[tokens.specials["end"]]


def test_no_tokenizer_file_has_that_rule(tmp_path):
    with refuses(key="tokens.lines", file=tmp_path / "tokenizer.json"):
        fitted()[0].save(tmp_path / "tokenizer.json")
