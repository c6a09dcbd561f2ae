"""Recipes for text of every form, and that they load and pass the check."""

import json

import numpy as np
import pytest

from sciformer.check.check import check
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from tests.domains.text.readers.files import DATA as SHARED
from tests.domains.text.readers.files import shared, write
from tests.domains.text.test_new_forms import ENGLISH, GERMAN
from tests.errors import refuses

TINY = {"model.dim": 8, "model.depth": 1, "model.heads": 2, "train.steps": 3, "train.warmup": 1, "train.device": "cpu"}
TEXTS = [f"the {'good' if i % 2 else 'bad'} film number {i} was {'very ' * (i % 4)}long" for i in range(60)]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def passes(path, **changes):
    recipe = Recipe.load(path)
    checked = check(recipe.change({**TINY, **changes}))
    assert checked.problems == []
    return recipe, path.read_text("utf-8")


def test_two_languages_become_a_translation(tmp_path):
    for part, count in {"train": 40, "val": 12}.items():
        write(tmp_path / f"{part}.en", "\n".join(ENGLISH[:count]))
        write(tmp_path / f"{part}.de.gz", "\n".join(GERMAN[:count]))
        write(tmp_path / f"{part}.de", "\n".join(GERMAN[:count]))
    path = new("text", ["train.en", "train.de", "val.en", "val.de"])
    assert path.name == "train.yaml"
    recipe, page = passes(
        path, **{"train.tokens": 128, "tokens.source.vocabulary": 300, "tokens.target.vocabulary": 300}
    )
    assert (recipe.data.kind, recipe.model.kind, recipe.objective.kind) == ("parallel", "encoder_decoder", "translate")
    assert (recipe.data.columns, recipe.data.files, recipe.data.valid) == (["en", "de"], ["train.{}"], ["val.{}"])
    assert recipe.data.split.test == 0
    source, target = recipe.tokens["source"], recipe.tokens["target"]
    assert (source.column, target.column, target.begin, target.end) == ("en", "de", True, True)
    assert source.unit == "bpe"
    assert source.same_vocabulary(target)
    assert "# Found: 40 pairs of lines" in page
    assert "# 12 of 12 pairs of valid are among those to train on too." in page


def test_pairs_between_tabs_are_a_translation_and_languages_may_be_words_of_yaml(tmp_path):
    write(tmp_path / "pairs.tsv", "no\ten\n" + "\n".join(f"{a}\t{b}" for a, b in zip(GERMAN * 4, ENGLISH * 4)))
    recipe = Recipe.load(new("text", ["pairs.tsv"]))
    assert (recipe.data.columns, recipe.tokens["source"].column) == (["no", "en"], "no")
    assert recipe.data.files == ["pairs.tsv"]
    assert (recipe.data.split.valid, recipe.data.split.test) == (0.1, 0.1)


def test_wrong_numbers_of_lines_are_told(tmp_path):
    write(tmp_path / "a.en", "\n".join(ENGLISH))
    write(tmp_path / "a.de", "\n".join(GERMAN[1:]))
    with refuses("a.de", "a.en", 39, 40):
        new("text", ["a.en", "a.de"])


def test_labelled_lines_become_a_classifier(tmp_path):
    objects = [{"review": text, "sentiment": ["neg", "pos"][i % 2], "stars": i % 5} for i, text in enumerate(TEXTS)]
    write(tmp_path / "films.jsonl", "\n".join(map(json.dumps, objects)))
    recipe, page = passes(new("text", ["films.jsonl"]), **{"tokens.vocabulary": 100})
    assert (recipe.data.kind, recipe.model.kind, recipe.objective.kind) == ("lines", "encoder", "classify")
    assert (recipe.objective.label, recipe.tokens.unit, recipe.train.best) == ("label", "wordpiece", "accuracy")
    assert (recipe.data.split.valid, recipe.data.split.test) == (0.1, 0.0)
    assert "`label` (2 different), `stars` (5 different)" in page
    assert "`label` has 2 different values: neg, pos" in page


def test_values_beside_texts_are_regressed(tmp_path):
    rows = "".join(f'"{text}",{np.sqrt(i):.3f}\n' for i, text in enumerate(TEXTS, 2))
    write(tmp_path / "films.csv", "text,score\n" + rows)
    recipe, _ = passes(new("text", ["films.csv"]), **{"tokens.vocabulary": 100})
    assert (recipe.objective.kind, recipe.objective.targets, recipe.train.best) == ("regress", ["score"], "loss")


def test_a_file_for_each_class(tmp_path):
    for label in ("neg", "pos"):
        write(tmp_path / f"rt.{label}.gz", "\n".join(f"{label} {text}" for text in TEXTS))
    recipe, _ = passes(new("text", ["rt.neg.gz", "rt.pos.gz"]), **{"tokens.vocabulary": 100})
    assert (recipe.data.files, recipe.data.classes) == (["rt.{}.gz"], {"neg": [], "pos": []})
    assert recipe.objective.kind == "classify"
    assert recipe.data.split.test == 0.1


def test_texts_alone_in_a_table_get_a_language_model(tmp_path):
    write(tmp_path / "web.jsonl", "\n".join(json.dumps({"text": text}) for text in TEXTS))
    recipe, _ = passes(new("text", ["web.jsonl"]))
    assert (recipe.data.kind, recipe.objective.kind, recipe.tokens.unit) == ("lines", "next_token", "characters")


@pytest.mark.parametrize(("name", "spans"), [("a.conll", True), ("b.txt", False)])
def test_words_in_columns_become_a_tagger(tmp_path, name, spans):
    tags = ("B-person", "O") if spans else ("NAME", "VERB")
    write(tmp_path / name, "\n".join(f"Ada{i % 7} {tags[0]}\nwrote {tags[1]}\nit{i} {tags[1]}\n" for i in range(120)))
    recipe, _ = passes(new("text", [name]), **{"tokens.vocabulary": 100})
    assert (recipe.data.kind, recipe.model.kind, recipe.objective.kind) == ("conll", "encoder", "tag")
    assert recipe.tokens.column == "words"
    assert recipe.train.best == ("entity_f1" if spans else "token_accuracy")


def test_columns_of_universal_dependencies(tmp_path):
    block = "# text\n1\tAda\tada\tPROPN\t_\t_\t0\troot\t_\t_\n2\tran\trun\tVERB\t_\t_\t1\tx\t_\t_\n\n"
    write(tmp_path / "a.conllu", block * 20)
    recipe = Recipe.load(new("text", ["a.conllu"]))
    assert (recipe.data.words, recipe.data.tags, recipe.data.comments) == (1, 3, True)


def test_running_text_in_three_files(tmp_path):
    for part in ("train", "valid", "test"):
        write(tmp_path / f"wiki.{part}.txt", f"The {part} text runs on and on, over many lines.\n" * 40)
    recipe, page = passes(new("text", ["wiki.*.txt"]))
    assert (recipe.data.files, recipe.data.valid, recipe.data.test) == (
        ["wiki.train.txt"],
        ["wiki.valid.txt"],
        ["wiki.test.txt"],
    )
    assert recipe.objective.kind == "next_token"
    assert "by its name" in page


@pytest.mark.parametrize(
    ("name", "text", "mentions", "hint"),
    [
        ("a.csv", "text,label\na,b\n" * 3, ("10 samples", 5), ""),
        ("a.tsv", "a\tb\tc\n" * 30, ("a.tsv",), ""),
        (
            "a.csv",
            "text,name\n" + "".join(f"t {i},n{i}\n" for i in range(30)),
            ("2 to 1,000", "`name` with 30"),
            "",
        ),
        ("a.conll", "a O\nb\n", ("2 columns", "line 2"), ""),
        ("a.conll", b"a O\n\xff O\n", ("UTF-8", "a.conll"), ""),
        (
            "a.txt",
            b"a \xff text\n" * 99,
            ("a.txt",),
            "sciformer train text/gpt-char --data.files NAME ... --data.errors replace",
        ),
    ],
)
def test_what_readers_refuse_is_refused(tmp_path, name, text, mentions, hint):
    write(tmp_path / name, text)
    with refuses(*mentions, hint=hint):
        new("text", [name])
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_folders_tell_what_files_are_for(tmp_path):
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        for kind in ("neg", "pos"):
            write(tmp_path / part / f"{kind}.txt", "\n".join(f"{part} {kind} {i}" for i in range(20)))
    recipe = Recipe.load(new("text", ["train/neg.txt", "train/pos.txt", "test/neg.txt", "test/pos.txt"]))
    assert (recipe.data.files, recipe.data.test) == (["train/{}.txt"], ["test/{}.txt"])


@shared
def test_recipes_of_real_files():
    def recipe(*names):
        return Recipe.load(new("text", [str(SHARED / name) for name in names], "a.yaml", overwrite=True))

    pairs = recipe("multi30k/train.en.gz", "multi30k/train.de.gz", "multi30k/val.en.gz", "multi30k/val.de.gz")
    assert (pairs.data.kind, pairs.tokens["source"].vocabulary, pairs.train.tokens) == ("parallel", 10_000, 8192)
    names = recipe("wnut17/train.conll.gz", "wnut17/dev.conll.gz", "wnut17/test.conll.gz")
    assert (names.data.kind, names.objective.kind) == ("conll", "tag")
    films = recipe("sentence_polarity/rt-polarity.neg.gz", "sentence_polarity/rt-polarity.pos.gz")
    assert (films.data.kind, list(films.data.classes)) == ("lines", ["neg", "pos"])
    assert recipe("tinyshakespeare/input.txt.gz").objective.kind == "next_token"
