"""Subwords: tokenizers of others read, our own learned and written."""

import hashlib
import json
import os
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from sciformer.data.columns import Lists
from sciformer.domains.text import subwords
from sciformer.domains.text.tokens import SUBWORD_UNITS, as_table
from sciformer.domains.text.unigram import (
    _best_scores,
    _candidate_pieces,
    _expected_counts,
    _letter_runs,
    _part_edges,
    _text_edges,
    learn_pieces,
)
from sciformer.testing import check_tokens
from tests.domains.text.fitted import fitted
from tests.domains.text.foreign import byte_pairs, wordpiece
from tests.errors import refuses
from tests.paths import ROOT

CORPUS = ["Two young, White males are outside near many bushes.", "it isn't über-cool: 123 cats\n  and dogs"] * 4
UNITS = ("characters", "bytes", "words", *SUBWORD_UNITS)


def bert():
    """As uncased BERT: it cuts, pads, and puts tokens around a text by itself."""
    made, _ = wordpiece()
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.enable_truncation(8)
    made.enable_padding(length=8)
    return made


def roberta():
    """As RoBERTa: GPT-2 with five special tokens, the mask one taking the blank before it."""
    made = byte_pairs()
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)])
    return made


def llama():
    """As LLaMA: no words at all, blanks are letters, what is not there is written in bytes."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = [*"▁abcdefghijklmnopqrstuvwxyz.:TWüö", "th", "he", "▁a", "▁an", "er"]
    merges = [("t", "h"), ("h", "e"), ("▁", "a"), ("▁a", "n"), ("e", "r")]
    vocabulary = {token: number for number, token in enumerate([*special, *letters])}
    made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(parts)
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return made


FORMS = {"bert": bert, "gpt2": byte_pairs, "roberta": roberta, "llama": llama}
ROLES = {
    "bert": {"padding", "unknown", "begin", "end", "mask", "separator"},
    "gpt2": {"begin", "end", "separator"},
    "roberta": {"padding", "unknown", "begin", "end", "mask", "separator"},
    "llama": {"unknown", "begin", "end", "separator"},
}


@pytest.fixture(params=FORMS)
def form(request, tmp_path):
    made = FORMS[request.param]()
    made.save(str(tmp_path / "tokenizer.json"))
    return request.param, made, fitted(tokenizer=str(tmp_path), begin=True, end=True)


def test_a_tokenizer_of_others(form, tmp_path):
    name, made, tokens = form
    assert set(tokens.specials) == ROLES[name]
    assert tokens.size == made.get_vocab_size()
    made.no_truncation()
    made.no_padding()
    for text in [*CORPUS, "Zwölf Männer 日本 ", " \n a", ""]:
        expected = made.encode(text, add_special_tokens=False)
        assert tokens.encode(text).tolist() == expected.ids
        clear = [i for i in expected.ids if made.id_to_token(i) not in ("[UNK]", "<unk>")]
        if clear == expected.ids:
            assert tokens.decode(expected.ids) == made.decode(expected.ids)
        assert len(tokens.token_labels(tokens.tokenize(as_table([text])))) == len(expected.ids) + 2
    stream = tokens.tokenize(as_table([CORPUS[0] * 3]))
    assert stream.columns["ids"][[0, -1]].tolist() == [tokens.specials["begin"], tokens.specials["end"]]
    assert not tokens.writable[list(tokens.specials.values())].any()
    assert tokens.decode(stream.columns["ids"]) == tokens.decode(tokens.encode(CORPUS[0] * 3))
    blind = {} if "mask" in tokens.specials else {"special": {"mask": made.id_to_token(5)}}
    assert check_tokens(tokens.model_copy(update=blind), as_table([*CORPUS[:2], ""])) == []
    for role in ("begin", "end"):  # their names in a text mean them
        assert tokens.encode(f"a{made.id_to_token(tokens.specials[role])}")[-1] == tokens.specials[role]
    tokens.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == tokens.state["tokenizer"]


def test_parts_of_long_texts(form, monkeypatch):
    name, _, tokens = form
    text = " ".join(CORPUS)
    whole = tokens.tokenize(as_table([text])).columns
    assert tokens.coder.cuts
    monkeypatch.setattr(subwords, "MAX_BATCH_CHARACTERS", 20)
    parts = tokens.tokenize(as_table([text])).columns
    np.testing.assert_array_equal(parts["ids"], whole["ids"])
    if name != "llama":  # where each part is a word
        np.testing.assert_array_equal(parts["word"], whole["word"])


def test_where_parts_would_differ_a_text_stays_whole(monkeypatch):
    made = byte_pairs()
    made.normalizer = normalizers.Strip()
    coder = subwords.Subwords(made.to_str(), (), False)
    assert not coder.cuts
    monkeypatch.setattr(subwords, "MAX_BATCH_CHARACTERS", 5)
    assert coder.encode([CORPUS[0]])[0][0].tolist() == made.encode(CORPUS[0]).ids


def test_a_padded_vocabulary_and_other_roles(tmp_path):
    made = byte_pairs()
    made.save(str(tmp_path / "t.json"))
    size = made.get_vocab_size()
    file, other = str(tmp_path / "t.json"), str(tmp_path / "no.json")
    tokens = fitted(tokenizer=file, vocabulary=320, special={"mask": "!"})
    assert tokens.size == len(tokens.writable) == 320
    assert not tokens.writable[size:].any()
    assert tokens.decode([310, *tokens.encode("cats"), 319]) == "cats"
    assert tokens.mask == tokens.encode("!")[0]
    stream = tokens.tokenize(as_table(["cats"]))
    assert set(tokens.token_labels(stream.with_columns(ids=np.full_like(stream.columns["ids"], 319)))) == {""}
    for options, key, where, mentions in (
        ({"vocabulary": size - 1}, "tokens.vocabulary", None, (size, size - 1)),
        ({"special": {"mask": "[MASK]"}}, "tokens.special.mask", None, ("'[MASK]'",)),
        ({"lower": True}, "tokens.lower", file, ("tokens.lower",)),
        ({"tokenizer": other}, "tokens.tokenizer", other, (other,)),
    ):
        with refuses(*mentions, key=key, file=where):
            fitted(**{"tokenizer": file, **options})
    (tmp_path / "bad.json").write_text('{"model": 3}')
    with refuses(key="tokens.tokenizer"):
        fitted(tokenizer=str(tmp_path / "bad.json"))
    with refuses("mask", "begin, end, separator", key="tokens.special.mask", hint="tokens.special.mask"):
        _ = fitted(tokenizer=file).mask


@pytest.mark.parametrize(
    ("vocabulary", "mention", "hint"),
    [({}, "t.json", ""), ({"the": 0, "cat": 7}, "Missing [UNK] token", "unknown token")],
)
def test_a_file_that_holds_no_whole_tokenizer(tmp_path, vocabulary, mention, hint):
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    rules = {"version": "1.0", "model": model, "pre_tokenizer": {"type": "Whitespace"}}
    (tmp_path / "t.json").write_text(json.dumps(rules))
    with refuses(mention, key="tokens.tokenizer", hint=hint):
        fitted(tokenizer=str(tmp_path / "t.json")).encode("the dog")


def test_a_run_needs_its_file_no_more(tmp_path, monkeypatch):
    bert().save(str(tmp_path / "t.json"))
    monkeypatch.chdir(tmp_path)
    tokens = fitted(tokenizer="t.json")
    (tmp_path / "t.json").unlink()
    twin = tokens.fresh()
    twin.state.update(json.loads(json.dumps(tokens.state)))
    np.testing.assert_array_equal(twin.encode(CORPUS[0]), tokens.encode(CORPUS[0]))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("options", [{}, {"begin": True, "end": True, "lower": True, "unicode_form": "nfkc"}])
def test_our_own_as_a_file(unit, options, tmp_path):
    tokens, file = fitted(unit, CORPUS, **options), str(tmp_path / "tokenizer.json")
    tokens.save(file)
    made = Tokenizer.from_file(file)
    again = fitted(tokenizer=file, begin=tokens.begin, end=tokens.end)
    assert (again.size, again.specials) == (tokens.size, tokens.specials)
    for text in [*CORPUS, "ÜBER Cool ﬁsh", "cats  cats", "\ncats"]:
        ids = tokens.encode(text)
        assert made.encode(text, add_special_tokens=False).ids == ids.tolist()
        assert again.encode(text).tolist() == ids.tolist()
        stream = tokens.tokenize(as_table([text]))
        assert made.encode(text).ids == stream.columns["ids"].tolist()
        if unit not in ("characters", "bytes"):
            assert again.decode(ids) == tokens.decode(ids)
    if unit != "words":
        assert made.decode(tokens.encode("cats and")) == "cats and"
    split = Lists(np.array(["two", "cats"], object), np.array([2]))
    if unit in ("words", *SUBWORD_UNITS):
        found, expected = (one.tokenize({"text": split}).columns["word"] for one in (again, tokens))
        np.testing.assert_array_equal(found, expected)


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with refuses("`tokenizers`", hint="pip install 'sciformer[text]'"):
        fitted("bpe", CORPUS)
    with refuses("`tokenizers`"):
        fitted("words", CORPUS).save(tmp_path / "t.json")


def test_threads_are_used_here_and_never_in_a_worker(monkeypatch):
    monkeypatch.setattr(subwords, "_SET_VARIABLES", set())
    monkeypatch.delenv(subwords.PARALLELISM_VARIABLE, raising=False)

    def seen():
        with subwords.all_threads():
            inside = os.environ[subwords.PARALLELISM_VARIABLE]
        return inside, os.environ[subwords.PARALLELISM_VARIABLE]

    assert seen() == ("true", "false")  # said, so that no fork warns
    monkeypatch.setattr(subwords.multiprocessing, "parent_process", lambda: object())
    assert seen() == ("false", "false")
    monkeypatch.setattr(subwords, "_SET_VARIABLES", set())
    monkeypatch.setenv(subwords.PARALLELISM_VARIABLE, "1")
    assert seen() == ("1", "1")  # the user's word


# Vocabularies learned from texts


TEXTS = [
    "two young men are outside near many bushes .",
    "several men in hard hats are operating a giant pulley system .",
    "zwei junge weiße männer sind im freien in der nähe vieler büsche .",
    "mehrere männer mit schutzhelmen bedienen ein antriebsradsystem .",
] * 3
PROGRAM = "from tests.domains.text.test_subwords import TEXTS, digests; print(*digests(TEXTS))"


def digests(texts):
    sizes = {"words": None, **dict.fromkeys(SUBWORD_UNITS, 300)}
    states = [fitted(unit, texts, vocabulary=size).state for unit, size in sizes.items()]
    return [hashlib.sha256(json.dumps(state).encode()).hexdigest() for state in states]


def test_the_same_text_gives_the_same_vocabulary_in_every_process():
    command = [sys.executable, "-c", PROGRAM]
    there = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    here = digests(TEXTS)
    assert there.split() == here  # hash tables have another order there
    assert len(set(here)) == 4
    assert digests(TEXTS[::-1]) == here
    assert all(one != other for one, other in zip(digests(TEXTS[:-3]), here))


@pytest.mark.parametrize(("unit", "few", "more"), [("bpe", 270, 300), ("wordpiece", 100, 130), ("unigram", 40, 55)])
def test_the_size_is_what_was_asked_for_or_what_there_is(unit, few, more):
    small, large, whole = (fitted(unit, TEXTS, vocabulary=size) for size in (few, more, 100_000))
    assert (small.size, large.size) == (few, more)
    assert more < whole.size < 1000
    one, two, three = (len(tokens.encode(" ".join(TEXTS))) for tokens in (small, large, whole))
    assert one >= two >= three < one
    single = fitted(unit, ["ab"])
    assert single.decode(single.encode("ab")) == "ab"


def test_too_small_a_vocabulary():
    for unit, size, mentions in (("bpe", 261, (262, 261)), ("wordpiece", 20, (20,)), ("words", 6, (6,))):
        with refuses(*mentions, key="tokens.vocabulary"):
            fitted(unit, TEXTS, vocabulary=size)
    with refuses(99, 12, key="tokens.minimum"):
        fitted("words", TEXTS, minimum=99)
    few = fitted("unigram", TEXTS, vocabulary=9)  # the blank and the two likeliest letters
    assert few.size == 9
    assert few.decode(few.encode("en x")) == "en <unk>"


def test_words_by_frequency_then_alphabet():
    tokens = fitted("words", ["b a c a", "d <unk> <s> c a"])
    assert tokens.state == {"words": "a\nc\nb\nd"}
    assert tokens.specials == {"padding": 0, "unknown": 1, "begin": 2, "end": 3, "mask": 4, "separator": 5}
    assert tokens.encode("a d <unk> x <s>").tolist() == [6, 9, 1, 1, 1]
    for limit in ({"vocabulary": 8}, {"minimum": 2}):
        assert fitted("words", ["b a c a", "d c a"], **limit).state == {"words": "a\nc"}
    assert fitted("words", ["B a b A"], lower=True).state == {"words": "a\nb"}


def test_names_of_special_tokens():
    bert = {"padding": "[PAD]", "unknown": "[UNK]", "begin": "[CLS]", "end": "[SEP]", "separator": "[SEP]"}
    for unit in ("words", *SUBWORD_UNITS):
        tokens = fitted(unit, TEXTS, special=bert, begin=True, end=True)
        assert tokens.specials["end"] == tokens.specials["separator"]
        shown = tokens.token_labels(tokens.tokenize(as_table(["two"])))
        assert (shown[0], shown[-1]) == ("[CLS]", "[SEP]")
        same = fitted(unit, TEXTS, special={"padding": "<unk>"})
        assert same.specials["padding"] == same.specials["unknown"]
        assert unit == "bpe" or same.encode("日")[-1] == same.specials["unknown"]
    with refuses("'start'", key="tokens.special"):
        fitted("words", TEXTS, special={"start": "<s>"})


@pytest.mark.parametrize("unit", SUBWORD_UNITS)
def test_minimum_keeps_rare_pieces_apart(unit):
    rare, often = (fitted(unit, ["abcd abcd xyz"], minimum=least) for least in (2, 3))
    if unit == "unigram":
        assert rare.state == often.state
    else:
        assert len(rare.encode("abcd")) == 1
        assert len(often.encode("abcd")) > 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab .\n", max_size=12), max_size=4), st.integers(1, 6), st.sampled_from(SUBWORD_UNITS))
def test_long_texts_are_encoded_in_parts(texts, long, unit):
    tokens = fitted(unit, ["ab ba.\nabab a. b\n" * 4])
    whole = tokens.tokenize(as_table(texts))
    assert tokens.coder.cuts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subwords, "MAX_BATCH_CHARACTERS", long)
        parts = tokens.tokenize(as_table(texts))
    assert parts.lengths.tolist() == whole.lengths.tolist()
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(parts.columns[name], column)


def test_a_long_text_is_learned_from_in_parts(monkeypatch):
    text = " ".join(TEXTS)
    whole = fitted("wordpiece", [text], vocabulary=150).state
    monkeypatch.setattr(subwords, "MAX_BATCH_CHARACTERS", 50)
    assert len(subwords.cut_text(text)) > 5
    assert "".join(subwords.cut_text(text)) == text
    assert fitted("wordpiece", [text], vocabulary=150).state == whole
    assert subwords.cut_text("x" * 200) == ["x" * 200]


def ways(word):
    """All ways to cut a word."""
    for cuts in range(len(word)):
        for places in combinations(range(1, len(word)), cuts):
            yield [word[i:j] for i, j in zip((0, *places), (*places, len(word)))]


def test_unigram_sums_over_all_ways():
    words, weight = ["abab", "ba", "c", "abc"], np.array([3.0, 2.0, 1.0, 5.0])
    lengths = np.array([len(word) for word in words])
    runs = _candidate_pieces(_letter_runs(words, lengths, weight), 100)
    line = "".join(words)
    pieces = [line[first : first + long] for first, long in zip(runs.first, runs.long)]
    assert pieces == ["a", "b", "c", "ab", "ba", "bc", "aba", "abc", "bab", "abab"]
    assert runs.times.tolist() == [13, 13, 6, 11, 5, 5, 3, 5, 3, 3]
    p = np.random.default_rng(0).dirichlet(np.ones(len(pieces)))
    likely = dict(zip(pieces, p))
    expected = dict.fromkeys(pieces, 0.0)
    for word, times in zip(words, weight):
        chance = {tuple(way): np.prod([likely.get(piece, 0) for piece in way]) for way in ways(word)}
        for way, share in chance.items():
            for piece in way:
                expected[piece] += times * share / sum(chance.values())
    found = _expected_counts(_text_edges(runs, lengths), p, weight)
    np.testing.assert_allclose(found, list(expected.values()), rtol=1e-12)
    best = _best_scores(_part_edges(runs), np.log(p))
    for piece, score in zip(pieces, best):
        known = [way for way in ways(piece) if len(way) > 1 and set(way) <= set(pieces)]
        scores = [np.log([likely[part] for part in way]).sum() for way in known]
        np.testing.assert_allclose(score, max(scores, default=-np.inf))


def test_unigram_finds_the_words_a_text_is_made_of():
    rng = np.random.default_rng(0)
    parts = ["quark", "boson", "lep", "ton"]
    counts = {}
    for _ in range(300):
        word = "".join(rng.choice(parts, rng.integers(1, 4)))
        counts[word] = counts.get(word, 0) + 1
    letters = set("".join(parts))
    found = learn_pieces(counts, len(letters) + 4)
    assert {*parts, *letters} <= {piece for piece, _ in found}
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert sum(np.exp(scores)) < 1.01
    assert len(learn_pieces({"x" * 1000: 1}, 5)) <= 5  # longer than any word
