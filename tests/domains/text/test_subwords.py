"""Files of tokenizers: those of others read, our own written."""

import json
import os
import sys

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from sciformer.data.columns import Lists
from sciformer.domains.text import subwords
from sciformer.domains.text.tokens import SUBWORD_UNITS, Text, as_table
from sciformer.testing import check_tokens
from tests.domains.text.foreign import byte_pairs, wordpiece
from tests.errors import refuses

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
    tokens = Text(kind="text", tokenizer=str(tmp_path), begin=True, end=True)
    tokens.fit([])
    return request.param, made, tokens


def test_a_tokenizer_of_others(form):
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
    assert stream.columns["ids"][0] == tokens.specials["begin"]
    assert stream.columns["ids"][-1] == tokens.specials["end"]
    assert not tokens.writable[list(tokens.specials.values())].any()
    assert tokens.decode(stream.columns["ids"]) == tokens.decode(tokens.encode(CORPUS[0] * 3))
    blind = {} if "mask" in tokens.specials else {"special": {"mask": made.id_to_token(5)}}
    assert check_tokens(tokens.model_copy(update=blind), as_table([*CORPUS[:2], ""])) == []


def test_names_in_a_text_mean_special_tokens_of_others(form):
    _, made, tokens = form
    for role in ("begin", "end"):
        shown = made.id_to_token(tokens.specials[role])
        assert tokens.encode(f"a{shown}").tolist()[-1] == tokens.specials[role]


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
    tokens = Text(kind="text", tokenizer=str(tmp_path / "t.json"), vocabulary=320, special={"mask": "!"})
    tokens.fit([])
    assert tokens.size == 320
    assert tokens.writable.shape == (320,)
    assert not tokens.writable[size:].any()
    assert tokens.decode([310, *tokens.encode("cats"), 319]) == "cats"
    assert tokens.mask == tokens.encode("!")[0]
    stream = tokens.tokenize(as_table(["cats"]))
    assert set(tokens.token_labels(stream.with_columns(ids=np.full_like(stream.columns["ids"], 319)))) == {""}
    file, other = str(tmp_path / "t.json"), str(tmp_path / "no.json")
    for options, key, where, mentions in (
        ({"vocabulary": size - 1}, "tokens.vocabulary", None, (size, size - 1)),
        ({"special": {"mask": "[MASK]"}}, "tokens.special.mask", None, ("'[MASK]'",)),
        ({"lower": True}, "tokens.lower", file, ("tokens.lower",)),
        ({"tokenizer": other}, "tokens.tokenizer", other, (other,)),
    ):
        bad = Text(**{"kind": "text", "tokenizer": file, **options})
        with refuses(*mentions, key=key, file=where):
            bad.fit([])
    (tmp_path / "bad.json").write_text('{"model": 3}')
    with refuses(key="tokens.tokenizer"):
        Text(kind="text", tokenizer=str(tmp_path / "bad.json")).fit([])
    bare = Text(kind="text", tokenizer=str(tmp_path / "t.json"))
    bare.fit([])
    with refuses("mask", "begin, end, separator", key="tokens.special.mask", hint="tokens.special.mask"):
        _ = bare.mask


@pytest.mark.parametrize(
    ("vocabulary", "mention", "hint"),
    [({}, "t.json", ""), ({"the": 0, "cat": 7}, "Missing [UNK] token", "Mend its file")],
)
def test_a_file_that_holds_no_whole_tokenizer(tmp_path, vocabulary, mention, hint):
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    rules = {"version": "1.0", "model": model, "pre_tokenizer": {"type": "Whitespace"}}
    (tmp_path / "t.json").write_text(json.dumps(rules))
    tokens = Text(kind="text", tokenizer=str(tmp_path / "t.json"))

    def use():
        tokens.fit([])
        tokens.encode("the dog")

    with refuses(mention, key="tokens.tokenizer", hint=hint):
        use()


def test_a_run_needs_its_file_no_more(tmp_path, monkeypatch):
    bert().save(str(tmp_path / "t.json"))
    monkeypatch.chdir(tmp_path)
    tokens = Text(kind="text", tokenizer="t.json")
    assert tokens.absolute_paths().tokenizer == str(tmp_path.resolve() / "t.json")
    assert Text(kind="text").absolute_paths().tokenizer == ""
    tokens.fit([])
    (tmp_path / "t.json").unlink()
    twin = tokens.fresh()
    twin.state.update(json.loads(json.dumps(tokens.state)))
    np.testing.assert_array_equal(twin.encode(CORPUS[0]), tokens.encode(CORPUS[0]))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("options", [{}, {"begin": True, "end": True, "lower": True, "unicode_form": "nfkc"}])
def test_our_own_as_a_file(unit, options, tmp_path):
    tokens = Text(kind="text", unit=unit, **options)
    tokens.fit([as_table(CORPUS)])
    tokens.save(tmp_path / "tokenizer.json")
    made = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    again = Text(kind="text", tokenizer=str(tmp_path / "tokenizer.json"), begin=tokens.begin, end=tokens.end)
    again.fit([])
    assert again.size == tokens.size
    assert again.specials == tokens.specials
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


def test_a_file_of_others_is_written_as_it_was(form, tmp_path):
    *_, tokens = form
    tokens.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == tokens.state["tokenizer"]


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with refuses("`tokenizers`", hint="pip install 'sciformer[text]'"):
        Text(kind="text", unit="bpe").fit([as_table(CORPUS)])
    words = Text(kind="text", unit="words")
    words.fit([as_table(CORPUS)])
    with refuses("`tokenizers`"):
        words.save(tmp_path / "t.json")


def test_threads_are_used_here_and_never_in_a_worker(monkeypatch):
    monkeypatch.setattr(subwords, "_SET_VARIABLES", set())
    monkeypatch.delenv(subwords.PARALLELISM_VARIABLE, raising=False)
    with subwords.all_threads():
        assert os.environ[subwords.PARALLELISM_VARIABLE] == "true"
    assert os.environ[subwords.PARALLELISM_VARIABLE] == "false"  # said, so that no fork warns
    monkeypatch.setattr(subwords.multiprocessing, "parent_process", lambda: object())
    with subwords.all_threads():
        assert os.environ[subwords.PARALLELISM_VARIABLE] == "false"
    monkeypatch.setattr(subwords, "_SET_VARIABLES", set())
    monkeypatch.setenv(subwords.PARALLELISM_VARIABLE, "1")
    with subwords.all_threads():
        assert os.environ[subwords.PARALLELISM_VARIABLE] == "1"  # the user's word
    assert os.environ[subwords.PARALLELISM_VARIABLE] == "1"
