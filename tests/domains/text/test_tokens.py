"""Characters and bytes, two streams with one vocabulary, and the ways into a model and back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.assembly import Assembly
from sciformer.data.dataset import Dataset
from sciformer.data.source import Memory
from sciformer.domains.images.tokens import Patches, PatchReadout
from sciformer.domains.text.tokens import Text, TextEmbedding, TextReadout, as_table
from sciformer.run import train
from sciformer.training.resume import absolute_paths
from tests.domains.text.fitted import DE, EN, fitted, pair_recipe
from tests.errors import refuses

BOTH = {"unit": "bpe", "learn": ["en", "de"], "vocabulary": 280}


def test_a_joint_vocabulary_is_learned_once(tmp_path, monkeypatch):
    learned = []
    fit = Text.fit
    monkeypatch.setattr(Text, "fit", lambda self, tables: (learned.append(self.column), fit(self, tables)))
    made = Assembly.open(pair_recipe(tmp_path, BOTH, BOTH))
    source, target = made.tokens["source"], made.tokens["target"]
    assert learned == ["en"]
    assert source.state == target.state
    assert source.state is not target.state
    assert source.decode(target.encode("zwei dogs")) == "zwei dogs"
    batch = made.dataset("train").batch(np.array([0]))
    assert target.decode(batch.streams["target"].columns["ids"]) in DE
    assert made.dataset("train").shortened == 0
    learned.clear()
    apart = Assembly.open(pair_recipe(tmp_path, {"unit": "words"}, {"unit": "words"}))
    assert learned == ["en", "de"]
    assert ["two" in apart.tokens[side].state["words"] for side in ("source", "target")] == [True, False]


def test_a_run_says_that_texts_were_cut(tmp_path, capsys):
    train(pair_recipe(tmp_path, {**BOTH, "context": 4}, {**BOTH, "context": 5}), tmp_path / "run", report=False)
    assert "note: samples longer than tokens.*.context" in " ".join(capsys.readouterr().err.split())
    train(pair_recipe(tmp_path, BOTH, BOTH), tmp_path / "other", report=False)
    assert "tokens.*.context" not in capsys.readouterr().err


@pytest.mark.parametrize("unit", ["characters", "bytes", "words", "bpe", "wordpiece", "unigram"])
def test_who_is_alike(unit):
    def text(**options):
        return Text(**{"kind": "text", "unit": unit, "learn": ["en", "de"], **options})

    one = text(column="en")
    other = text(column="de", learn=["de", "en"], begin=True, end=True, context=9, tie=False, scale=True)
    assert one.same_vocabulary(other) is other.same_vocabulary(one) is True
    for options in ({"unit": "words" if unit != "words" else "bpe"}, {"vocabulary": 999}, {"lower": True}):
        assert not one.same_vocabulary(text(**options))
    if unit != "bytes":
        assert not one.same_vocabulary(text(learn=["en"]))
        assert not text(column="en", learn=[]).same_vocabulary(text(column="de", learn=[]))
    assert not one.same_vocabulary(Patches(kind="patches"))
    for tokens in (one, other):
        tokens.fit([{"en": np.array(EN), "de": np.array(DE)}])
    assert (one.size, one.specials) == (other.size, other.specials)


def test_files_of_tokens_are_located(tmp_path, here):
    found = absolute_paths(pair_recipe(tmp_path, {"tokenizer": "t.json"}, {"tokenizer": str(tmp_path / "u.json")}))
    files = [found.tokens[side].tokenizer for side in ("source", "target")]
    assert files == [str(tmp_path.resolve() / name) for name in ("t.json", "u.json")]


def test_one_embedding_for_both_and_scaled():
    torch.manual_seed(0)
    embedding = TextEmbedding(500, 64, scale=True)
    assert abs(float(embedding.table.weight.detach().std()) - 64**-0.5) < 0.005
    assert abs(float(TextEmbedding(500, 64).table.weight.detach().std()) - 0.02) < 0.001
    ids = torch.tensor([[1, 2, 2]])
    torch.testing.assert_close(embedding({"ids": ids}), embedding.table.weight[ids] * 8)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("tied", [True, False])
def test_losses_of_readouts(tied, smoothing):
    torch.manual_seed(0)
    embedding, hidden, target = TextEmbedding(11, 8), torch.randn(6, 8), {"ids": torch.arange(6)}
    readout = TextReadout(11, 8, embedding if tied else None)
    assert (readout.linear.weight is embedding.table.weight) == tied
    loss = -(hidden @ readout.linear.weight.T).log_softmax(-1)
    expected = (1 - smoothing) * loss[torch.arange(6), target["ids"]] + smoothing * loss.mean(-1)
    torch.testing.assert_close(readout.loss(hidden, target, smoothing), expected)
    wanted = torch.arange(6) % 2 == 0
    torch.testing.assert_close(readout.total(hidden, target, wanted, smoothing), expected[wanted].sum())
    torch.testing.assert_close(readout.total(hidden, target, smoothing=smoothing), expected.sum())
    assert torch.equal(readout.predict(hidden)["ids"], readout(hidden).argmax(-1))
    patches = PatchReadout(4, 8)
    with refuses(key="objective.smoothing"):
        patches.total(hidden, {"patch": torch.zeros(6, 4)}, wanted, smoothing=0.1)
    assert patches.total(hidden, {"patch": torch.zeros(6, 4)}, wanted) > 0


def test_texts_are_joined_or_kept_apart():
    texts, lengths = ["a b", "c", "d e f g"], {}
    for join in (False, True):
        tokens = fitted("words", texts, end=True, join=join, context=4)
        dataset = Dataset(Memory(as_table(texts)), {"tokens": tokens}, windows={"tokens": tokens.make_windows()})
        batch = dataset.all()
        lengths[join] = batch.stream.lengths.tolist()
        ids = batch.stream.columns["ids"]
        assert (ids == tokens.specials["end"]).sum() == 3  # each text ends once
    assert lengths == {False: [3, 2, 4, 1], True: [4, 4, 2]}  # without padding but for the last


# Characters and bytes


BYTES = Text(kind="text", unit="bytes")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=4), st.text(max_size=20))
def test_encode_and_decode_are_inverse(texts, other):
    assert BYTES.encode(other).tolist() == list(other.encode())
    seen = set("".join(texts)) - {"\ufffc", "\ufffd"}
    if not seen:
        return
    tokens = fitted(texts=texts)
    for text in [*texts, other]:
        ids = tokens.encode(text)
        assert (len(ids), ids.dtype) == (len(text), np.int32)
        assert tokens.decode(ids) == "".join(c if c in seen else "\ufffd" for c in text)
        assert all(0 <= i < tokens.size - 1 for i in ids)


def test_the_vocabulary_is_sorted_and_has_two_more():
    tokens = fitted(texts=["hello", "world 😀"])
    assert tokens.state == {"characters": " dehlorw😀"}
    assert (tokens.size, tokens.mask) == (11, 10)
    assert tokens.decode([0, 1, 8, 9, 10, 99]) == " d😀\ufffd\ufffc"
    assert tokens.encode("").shape == (0,)
    assert tokens.encode("xyzé").tolist() == [9] * 4
    assert BYTES.size == 258
    assert BYTES.decode([104, 105, 256, 257]) == "hi"
    assert fitted(texts=["ab"], vocabulary=64).size == 64
    with refuses():
        fitted(texts=["\ufffd\ufffc"])
    with refuses(5, 4, key="tokens.vocabulary"):
        _ = fitted(texts=["abc"], vocabulary=4).size
    assert Text(kind="text", context=7).window == Text(kind="text", context=7).grid_shape == 7
