"""Recipes for text of every form, by names and contents, and that they load and pass the check."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from sciformer.data.readers.text_parts import read_lines
from sciformer.domains.text.new import (
    are_translations,
    find_name_pattern,
    is_tagged,
    lines_match,
    tab_separated_columns,
)
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from tests.domains.text.readers.files import DATA as SHARED
from tests.domains.text.readers.files import ENGLISH, GERMAN, shared, write
from tests.errors import refuses
from tests.recipe.written import written

TEXTS = [f"the {'good' if i % 2 else 'bad'} film number {i} was {'very ' * (i % 4)}long" for i in range(60)]
SMALL = {"tokens.vocabulary": 100}


pytestmark = pytest.mark.usefixtures("here")


# Language models


def test_more_text_gets_a_larger_model_and_a_test_part(tmp_path):
    sizes = []
    for count in (40, 1000, 8000, 250_000):
        write(tmp_path / "story.txt", "Once upon a time there was a bead on a string.\n" * count)
        recipe = Recipe.load(new("text", ["story.txt"], overwrite=True))
        sizes.append((recipe.model.dim, recipe.tokens.context, recipe.train.steps, recipe.data.split.test))
        assert (recipe.data.documents, recipe.tokens.unit, recipe.model.kind) == ("file", "characters", "decoder")
    assert sizes == [(64, 32, 500, 0.0), (64, 64, 1000, 0.0), (128, 64, 2000, 0.1), (384, 256, 5000, 0.1)]


def test_lines_without_blanks_are_texts_of_their_own(tmp_path):
    write(tmp_path / "names.txt", "\n".join("ab" * (1 + i % 6) for i in range(300)))
    recipe, _ = written("text", ["names.txt"])
    assert (recipe.data.documents, recipe.tokens.context) == ("line", 16)


def test_many_different_characters_become_bytes_and_gzip_is_read(tmp_path):
    text = "".join(chr(0x4E00 + i % 2000) for i in range(4000))
    (tmp_path / "poem.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    recipe = Recipe.load(new("text", ["*.gz"]))
    assert (recipe.name, recipe.tokens.unit) == ("poem.yaml", "bytes")


def test_texts_alone_in_a_table_get_a_language_model(tmp_path):
    write(tmp_path / "web.jsonl", "\n".join(json.dumps({"text": text}) for text in TEXTS))
    recipe, _ = written("text", ["web.jsonl"])
    assert (recipe.data.kind, recipe.objective.kind, recipe.tokens.unit) == ("lines", "next_token", "characters")


def test_running_text_in_three_files(tmp_path):
    for part in ("train", "valid", "test"):
        write(tmp_path / f"wiki.{part}.txt", f"The {part} text runs on and on, over many lines.\n" * 40)
    recipe, _ = written("text", ["wiki.*.txt"])
    files = (recipe.data.files, recipe.data.valid, recipe.data.test)
    assert files == (["wiki.train.txt"], ["wiki.valid.txt"], ["wiki.test.txt"])
    assert recipe.objective.kind == "next_token"


# Translations, labels, tags


def test_two_languages_become_a_translation(tmp_path):
    for part, count in {"train": 40, "val": 12}.items():
        write(tmp_path / f"{part}.en", "\n".join(ENGLISH[:count]))
        write(tmp_path / f"{part}.de", "\n".join(GERMAN[:count]))
    small = {"train.tokens": 128, "tokens.source.vocabulary": 300, "tokens.target.vocabulary": 300}
    recipe, page = written("text", ["train.en", "train.de", "val.en", "val.de"], **small)
    assert (recipe.data.kind, recipe.model.kind, recipe.objective.kind) == ("parallel", "encoder_decoder", "translate")
    assert (recipe.data.columns, recipe.data.files, recipe.data.valid) == (["en", "de"], ["train.{}"], ["val.{}"])
    assert recipe.data.split.test == 0
    source, target = recipe.tokens["source"], recipe.tokens["target"]
    assert (source.column, source.unit) == ("en", "bpe")
    assert (target.column, target.begin, target.end) == ("de", True, True)
    assert source.same_vocabulary(target)
    assert all(told in page for told in ("# Found: 40 pairs of lines", "# 12 of 12 pairs of valid"))
    write(tmp_path / "val.de", "\n".join(GERMAN[:11]))
    with refuses("val.de", "val.en", 11, 12):
        new("text", ["train.en", "train.de", "val.en", "val.de"])


def test_pairs_between_tabs_are_a_translation_and_languages_may_be_words_of_yaml(tmp_path):
    write(tmp_path / "pairs.tsv", "no\ten\n" + "\n".join(f"{a}\t{b}" for a, b in zip(GERMAN * 4, ENGLISH * 4)))
    recipe = Recipe.load(new("text", ["pairs.tsv"]))
    assert (recipe.data.columns, recipe.tokens["source"].column) == (["no", "en"], "no")
    assert recipe.data.files == ["pairs.tsv"]
    assert (recipe.data.split.valid, recipe.data.split.test) == (0.1, 0.1)


def test_labelled_lines_become_a_classifier(tmp_path):
    objects = [{"review": text, "sentiment": ["neg", "pos"][i % 2], "stars": i % 5} for i, text in enumerate(TEXTS)]
    write(tmp_path / "films.jsonl", "\n".join(map(json.dumps, objects)))
    recipe, page = written("text", ["films.jsonl"], **SMALL)
    assert (recipe.data.kind, recipe.model.kind, recipe.objective.kind) == ("lines", "encoder", "classify")
    assert (recipe.objective.label, recipe.tokens.unit, recipe.train.best) == ("label", "wordpiece", "accuracy")
    assert (recipe.data.split.valid, recipe.data.split.test) == (0.1, 0.0)
    for told in ("`label` (2 different), `stars` (5 different)", "`label` has 2 different values: neg, pos"):
        assert told in page
    write(tmp_path / "films.csv", "text,score\n" + "".join(f'"{t}",{np.sqrt(i):.3f}\n' for i, t in enumerate(TEXTS, 2)))
    recipe, _ = written("text", ["films.csv"], **SMALL)
    assert (recipe.objective.kind, recipe.objective.targets, recipe.train.best) == ("regress", ["score"], "loss")


def test_a_file_for_each_class_and_folders_for_parts(tmp_path):
    for label in ("neg", "pos"):
        write(tmp_path / f"rt.{label}.gz", "\n".join(f"{label} {text}" for text in TEXTS))
        for part in ("train", "test"):
            write(tmp_path / part / f"{label}.txt", "\n".join(f"{part} {label} {i}" for i in range(20)))
    recipe, _ = written("text", ["rt.neg.gz", "rt.pos.gz"], **SMALL)
    assert (recipe.data.files, recipe.data.classes) == (["rt.{}.gz"], {"neg": [], "pos": []})
    assert (recipe.objective.kind, recipe.data.split.test) == ("classify", 0.1)
    recipe = Recipe.load(new("text", ["train/neg.txt", "train/pos.txt", "test/neg.txt", "test/pos.txt"]))
    assert (recipe.data.files, recipe.data.test) == (["train/{}.txt"], ["test/{}.txt"])


@pytest.mark.parametrize(("name", "spans"), [("a.conll", True), ("b.txt", False)])
def test_words_in_columns_become_a_tagger(tmp_path, name, spans):
    tags = ("B-person", "O") if spans else ("NAME", "VERB")
    write(tmp_path / name, "\n".join(f"Ada{i % 7} {tags[0]}\nwrote {tags[1]}\nit{i} {tags[1]}\n" for i in range(120)))
    recipe, _ = written("text", [name], **SMALL)
    assert (recipe.data.kind, recipe.model.kind, recipe.objective.kind) == ("conll", "encoder", "tag")
    assert recipe.tokens.column == "words"
    assert recipe.train.best == ("entity_f1" if spans else "token_accuracy")


def test_columns_of_universal_dependencies(tmp_path):
    block = "# text\n1\tAda\tada\tPROPN\t_\t_\t0\troot\t_\t_\n2\tran\trun\tVERB\t_\t_\t1\tx\t_\t_\n\n"
    write(tmp_path / "a.conllu", block * 20)
    recipe = Recipe.load(new("text", ["a.conllu"]))
    assert (recipe.data.words, recipe.data.tags, recipe.data.comments) == (1, 3, True)


LATIN = "café ".encode("latin1") * 200


@pytest.mark.parametrize(
    ("name", "text", "mentions", "hint"),
    [
        ("a.csv", "text,label\na,b\n" * 3, ("10 samples", 5), ""),
        ("a.csv", "text,name\n" + "".join(f"t {i},n{i}\n" for i in range(30)), ("2 to 15", "`name` with 30"), ""),
        ("a.tsv", "text\tlabel\n" + "".join(f"t {i}\tc{i}\n" for i in range(12)), ("2 to 6", "`label` with 12"), ""),
        ("a.csv", "colour,size\n" + "red,1\nblue,2\n" * 9, ("`colour`", "numbers"), "--data.text"),
        ("a.csv", "Word,POS,Tag\n" + "Ada,NN,B-per\nran,VB,O\n" * 9, ("a word and a tag",), "tab"),
        ("a.csv", "Ada,B-per\nran,O\n" * 9, ("a word and a tag",), "tab"),
        ("a.jsonl", '{"tokens": ["Ada", "ran"], "ner_tags": ["B-per", "O"]}\n' * 20, ("lists of words",), "tab"),
        ("a.csv", "time,mag\n" + "nan,2.5\n" * 9, ("table of numbers, 2", "9 of them NaN"), "lightcurves"),
        ("a.dat", "# time mag\n" + "1.0 2.5\n" * 9, ("table of numbers, 2",), "--data.kind text"),
        ("a.conll", "a O\nb\n", ("2 columns", "line 2"), ""),
        ("a.txt", b"short", (500, "not 5"), ""),
        ("a.txt", LATIN, ("UTF-8", "a.txt"), "--data.errors replace"),
    ],
)
def test_what_readers_refuse_is_refused(tmp_path, name, text, mentions, hint):
    write(tmp_path / name, text)
    with refuses(*mentions, hint=hint):
        new("text", [name])
    assert [file.name for file in tmp_path.iterdir()] == [name]


LONG = [f"a {'very ' * (1 + i % 5)}long text of number {i}" for i in range(40)]
LAYOUTS = {  # head, cells of a row; columns of text and label, keys of `data`
    "usual names": ("text\tlabel", "{text}\t{label}", "text", "label", {}),
    "a phrase as label": ("text\tlabel", "{text}\tit is {label}", "text", "label", {}),
    "tweets": ("tweet_id\tTweet\tAirline_Sentiment", "{i}\t{text}\t{label}", "Tweet", "Airline_Sentiment", {}),
    "names of other words": ("headline\toutcome", "{text}\t{label}", "headline", "outcome", {}),
    "unknown names": ("id\tanekdote\tart", "{i}\t{text}\t{label}", "anekdote", "art", {"text": "anekdote"}),
    "two texts": ("body\tcomment\tlabel", "{i}\t{text}\t{label}", "comment", "label", {"text": "comment"}),
    "a name at the end": ("x\treview_text\tis_spam", "{i}\t{text}\t{label}", "review_text", "is_spam", {}),
    "no names": ("", "{i}\t{text}\t{label}", "column_1", "column_2", {"columns": ["column_0", "text", "label"]}),
    "a pair": ("premise\thypothesis\tlabel", "{text}\t{text} x\t{label}", "premise and hypothesis", "label", {}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".data"])
def test_columns_of_labelled_texts_are_found(tmp_path, layout, suffix):
    head, row, text, label, keys = LAYOUTS[layout]
    lines = [row.format(i=i, text=one, label="ab"[i % 2]) for i, one in enumerate(LONG)]
    table = "\n".join([*([head] if head else []), *lines])
    write(tmp_path / f"a{suffix}", table.replace("\t", ",") if suffix == ".csv" else table)
    told = []
    recipe = Recipe.load(new("text", [f"a{suffix}"], log=told.append))
    ours = label if "unknown" in layout else "label"
    assert (recipe.data.kind, recipe.objective.kind, recipe.objective.label) == ("lines", "classify", ours)
    assert {key: getattr(recipe.data, key) for key in keys} == keys
    assert recipe.tokens.column == (["text", "hypothesis"] if layout == "a pair" else "text")
    (columns,) = [line for line in told if line.startswith("Columns: ")]
    assert re.sub(r" \([a-z ]+\)", "", columns) == f"Columns: text = {text}, label = {label}."
    assert any(line.startswith(f"Objective classify: `{ours}` has 2 different values: ") for line in told)
    opened = recipe.data.open().sources["train"]
    assert sum(opened.sizes) == 36
    assert {*opened.load(0)[ours]} == ({"it is a", "it is b"} if "phrase" in layout else {"a", "b"})


@pytest.mark.parametrize("head", ["", "word\ttag\n", "Token\tNER\n"])
def test_a_word_and_a_tag_in_each_line_of_a_tsv_are_a_tagged_file(tmp_path, head):
    write(tmp_path / "a.tsv", head + "Ada\tB-per\nran\tO\n\n" * 30)
    told = []
    recipe = Recipe.load(new("text", ["a.tsv"], log=told.append))
    assert (recipe.data.kind, recipe.objective.kind, recipe.train.best) == ("conll", "tag", "entity_f1")
    assert told[0].startswith("Found: 30 sentences, 60 words, 2 tags")
    assert any(line.startswith("Objective tag: ") for line in told)


def test_numbers_are_text_if_the_user_says_so(tmp_path):
    write(tmp_path / "a.txt", "1.5 2.5\n" * 100)
    recipe = Recipe.load(new("text", ["a.txt"], changes={"data.kind": "text"}))
    assert recipe.objective.kind == "next_token"


PARTS = {
    "valid": ("valid", "val", "dev", "devel", "development", "validation", "Dev", "devset", "val_set", "tune"),
    "test": ("test", "test2018", "newstest2014", "eval", "tst", "TEST", "test_2016_flickr", "testset"),
}
FORMS = {
    "lm.txt": "The text runs on and on, over many lines.\n" * 40,
    "table.tsv": "text\tlabel\n" + "".join(f"a text {i}\t{'ab'[i % 2]}\n" for i in range(20)),
    "words.conll": "Ada\tB-per\nran\tO\n\n" * 20,
    "pairs.en": "\n".join(ENGLISH),
    "classes.neg": "\n".join(f"text {i}" for i in range(20)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("style", ["{}", "corpus.{}", "{}/data"])
def test_parts_of_every_layout(tmp_path, form, part, style):
    suffix = Path(form).suffix
    suffixes = {".en": (".en", ".de"), ".neg": (".neg", ".pos")}.get(suffix, (suffix,))
    for word in PARTS[part] if style == "{}" else PARTS[part][:1]:
        names = [f"{style.format(name)}{one}" for name in ("train", word) for one in suffixes]
        for name in names:
            write(tmp_path / name, FORMS[form])
        data = Recipe.load(new("text", names, "made.yaml", overwrite=True)).data
        mark = ".{}" if len(suffixes) > 1 else suffix
        assert (data.files, getattr(data, part)) == ([style.format("train") + mark], [style.format(word) + mark])
        assert not data.extra_parts


# The form of files


@pytest.mark.parametrize(
    ("names", "values", "marks"),
    [
        ("train.en train.de", ["en", "de"], ["train.{}"]),
        ("d/train.en.gz d/train.de.gz d/val.de.gz d/val.en.gz", ["en", "de"], ["d/train.{}.gz", "d/val.{}.gz"]),
        ("news-src.txt news-tgt.txt", ["src", "tgt"], ["news-{}.txt"]),
        ("a.b.en a.b.de test_1.en test_1.de", ["en", "de"], ["a.b.{}", "test_1.{}"]),
        ("x.en x.de x.fr", ["en", "de", "fr"], ["x.{}"]),
        ("rt.neg.gz rt.pos.gz", ["neg", "pos"], ["rt.{}.gz"]),
        ("one.txt two.txt", ["one", "two"], ["{}.txt"]),
        ("en/train.txt de/train.txt en/dev.txt de/dev.txt", ["en", "de"], ["{}/train.txt", "{}/dev.txt"]),
        ("dev.en-US dev.de-DE", ["en-US", "de-DE"], ["dev.{}"]),
        ("set-EN.txt set-DE.txt", ["EN", "DE"], ["set-{}.txt"]),
        *(
            (names, None, None)
            for names in ("train.txt valid.txt", "a.en b.de", "a/x.en b/x.de", "x.en x.de y.en", "a")
        ),
    ],
)
def test_names_that_differ_in_one_part(names, values, marks):
    assert find_name_pattern([Path(name) for name in names.split()]) == (values and (values, marks))


def test_lines_that_belong_together(tmp_path):
    assert lines_match(ENGLISH, GERMAN)
    for one, other in ((ENGLISH, GERMAN[1:]), (ENGLISH, GERMAN[3:] + GERMAN[:3]), (["same"] * 20, ["same"] * 20)):
        assert not lines_match(one, other)
    for name, lines in {"a.one": ENGLISH, "a.two": GERMAN, "b.one": ENGLISH, "b.two": sorted(GERMAN)}.items():
        write(tmp_path / name, "\n".join(lines))
    for name, truth in {"a": True, "b": False}.items():
        assert are_translations(find_name_pattern([tmp_path / f"{name}.one", tmp_path / f"{name}.two"])) is truth


BOTH = "\n".join(f"{a}\t{b}" for a, b in zip(ENGLISH, GERMAN))


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.txt", BOTH, ["source", "target"]),
        ("a.tsv.gz", "en\tde\n" + BOTH, ["en", "de"]),
        ("a.tsv", "English\tGerman\n" + BOTH, ["English", "German"]),
        ("a.tsv", "text_en\ttext_de\n" + BOTH, ["text_en", "text_de"]),
        ("a.tsv", "Hello\tHallo\n" + BOTH, ["source", "target"]),
        ("a.tsv", "text\tlabel\n" + BOTH, []),
        ("a.tsv", "review\tverdict\n" + BOTH, []),
        ("a.tsv", "\n".join(f"{a}\t{i % 2}" for i, a in enumerate(ENGLISH)), []),
        ("a.tsv", "\n".join(f"{i}\t{a}" for i, a in enumerate(ENGLISH)), []),
        ("a.tsv", BOTH.replace("\t", "\t\t"), []),
        ("a.txt", "\n".join(ENGLISH), []),
    ],
    ids=str,
)
def test_pairs_between_tabs(tmp_path, name, text, columns):
    assert tab_separated_columns(Path(write(tmp_path / name, text))) == columns


@pytest.mark.parametrize(
    ("name", "text", "truth"),
    [
        ("a.conll", "anything", True),
        ("a.conllu.gz", "anything", True),
        ("a.txt", "Ada B-per\nwrote O\n\n" * 10, True),
        ("a.txt", "Ada NN B-per\nwrote V O\n\n" * 10, True),
        ("a.txt", "Ada B-per\nwrote O\n" * 10, False),
        ("a.txt", "Ada B-per\nwrote a lot O\n\n" * 10, False),
        ("a.txt", "Ada said\nwords word\n\n" * 10, False),
        ("a.txt", "".join(f"w{i} t{i}\n\n" for i in range(200)), False),
        ("a.txt", "".join(f"w{i} t{i % 9}\n\n" for i in range(200)), True),
        ("a.txt", "one\ntwo\n\n" * 20, False),
    ],
)
def test_words_with_tags(tmp_path, name, text, truth):
    assert is_tagged(Path(write(tmp_path / name, text))) is truth


@shared
def test_real_files():
    def recipe(*names):
        return Recipe.load(new("text", [str(SHARED / name) for name in names], "a.yaml", overwrite=True))

    pairs = recipe("multi30k/train.en.gz", "multi30k/train.de.gz", "multi30k/val.en.gz", "multi30k/val.de.gz")
    assert (pairs.data.kind, pairs.tokens["source"].vocabulary, pairs.train.tokens) == ("parallel", 10_000, 8192)
    names = recipe("wnut17/train.conll.gz", "wnut17/dev.conll.gz", "wnut17/test.conll.gz")
    assert (names.data.kind, names.objective.kind) == ("conll", "tag")
    films = recipe("sentence_polarity/rt-polarity.neg.gz", "sentence_polarity/rt-polarity.pos.gz")
    assert (films.data.kind, list(films.data.classes)) == ("lines", ["neg", "pos"])
    assert recipe("tinyshakespeare/input.txt.gz").objective.kind == "next_token"
    polarity = find_name_pattern([SHARED / f"sentence_polarity/rt-polarity.{one}.gz" for one in ("neg", "pos")])
    assert not lines_match(*(read_lines(Path(polarity.names[0].format(label))) for label in polarity.values))
    assert not is_tagged(SHARED / "wikitext2/test.txt.gz")
    assert tab_separated_columns(SHARED / "wikitext2/test.txt.gz") == []
