import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.domains.text.tokens import Text, as_table
from tests.errors import refuses

BYTES = Text(kind="text", unit="bytes")


def fitted(*texts, **options):
    tokens = Text(kind="text", **options)
    tokens.fit([as_table(list(texts))])
    return tokens


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=4), st.text(max_size=20))
def test_encode_and_decode_are_inverse(texts, other):
    assert BYTES.encode(other).tolist() == list(other.encode())
    seen = set("".join(texts)) - {"\ufffc", "\ufffd"}
    if not seen:
        return
    tokens = fitted(*texts)
    for text in [*texts, other]:
        ids = tokens.encode(text)
        assert len(ids) == len(text)
        assert ids.dtype == np.int32
        assert tokens.decode(ids) == "".join(c if c in seen else "\ufffd" for c in text)
        assert all(0 <= i < tokens.size - 1 for i in ids)


def test_the_vocabulary_is_sorted_and_has_two_more():
    tokens = fitted("hello", "world 😀")
    assert tokens.state == {"characters": " dehlorw😀"}
    assert tokens.size == 11
    assert tokens.mask == 10
    assert tokens.decode([0, 1, 8, 9, 10, 99]) == " d😀\ufffd\ufffc"
    assert tokens.encode("").shape == (0,)
    assert tokens.encode("xyzé").tolist() == [9] * 4
    assert BYTES.size == 258
    assert BYTES.decode([104, 105, 256, 257]) == "hi"
    assert fitted("ab", vocabulary=64).size == 64
    assert Text(kind="text", context=7).window == Text(kind="text", context=7).grid_shape == 7


def test_mistakes():
    with refuses():
        fitted("\ufffd\ufffc")
    with refuses(5, 4, key="tokens.vocabulary"):
        _ = fitted("abc", vocabulary=4).size


def test_tokenize_is_one_text_after_the_other():
    tokens = fitted("abc")
    stream = tokens.tokenize(as_table(["ab", "", "ccb"]))
    assert stream.lengths.tolist() == [2, 0, 3]
    assert stream.columns["ids"].tolist() == [0, 1, 2, 2, 1]
    assert tokens.tokenize(as_table([])).lengths.shape == (0,)
    strings = tokens.tokenize({"text": np.array(["ab", "", "ccb"])})
    np.testing.assert_array_equal(strings.columns["ids"], stream.columns["ids"])


def test_the_readout_may_be_the_embedding():
    tied, free = fitted("abc"), fitted("abc", tie=False)
    for tokens, shared in ((tied, True), (free, False)):
        embedding = tokens.embedding(8)
        readout = tokens.readout(8, embedding)
        assert (readout.linear.weight is embedding.table.weight) == shared
        hidden, ids = torch.randn(6, 8), torch.tensor([0, 1, 2, 3, 4, 0])
        loss = readout.loss(hidden, {"ids": ids})
        expected = -(hidden @ readout.linear.weight.T).log_softmax(-1)[torch.arange(6), ids]
        torch.testing.assert_close(loss, expected)
        wanted = torch.tensor([1, 0, 1, 1, 0, 0]).bool()
        torch.testing.assert_close(readout.total(hidden, {"ids": ids}, wanted), expected[wanted].sum())
        torch.testing.assert_close(readout.total(hidden, {"ids": ids}), expected.sum())
        assert torch.equal(readout.predict(hidden)["ids"], readout(hidden).argmax(-1))
