"""Words that a file has split already."""

import numpy as np

from sciformer.data.columns import Lists
from sciformer.domains.text.tokens import Text


def table(*words):
    return {"words": Lists(np.array(words, object), np.array([len(words)]))}


def test_a_word_with_a_blank_in_it_is_learned_as_one():
    seen = table("1 000", "New York", "1\xa0000", "cat", "1 000")
    tokens = Text(kind="text", unit="words", column="words", lower=True)
    tokens.fit([seen])
    stream = tokens.tokenize(seen)
    assert (stream.columns["ids"] != tokens.specials["unknown"]).all()
    assert tokens.token_labels(stream) == ["1 000", "new york", "1\xa0000", "cat", "1 000"]
    assert stream.columns["word"].tolist() == [0, 1, 2, 3, 4]
    assert tokens.encode("1 000 cat").tolist() == [*[tokens.specials["unknown"]] * 2, tokens.encode("cat")[0]]


def test_a_word_with_the_end_of_a_line_in_it_shifts_no_other():
    seen = table("a\nb", "cat", "cat", "dog")
    tokens = Text(kind="text", unit="words", column="words")
    tokens.fit([seen])
    assert tokens.token_labels(tokens.tokenize(seen)) == ["<unk>", "cat", "cat", "dog"]
