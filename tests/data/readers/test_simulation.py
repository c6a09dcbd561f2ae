"""Readers that simulate: recall and pronouns."""

import numpy as np
import pytest

from sciformer.assembly import Assembly
from sciformer.data.source import pieces
from sciformer.domains.text.simulate.sections import Pronouns, Recall
from sciformer.recipe import Recipe
from tests.errors import refuses


def tables(data):
    opened = data.open()
    return {part: next(pieces(source)) for part, source in opened.sources.items()}, opened.fingerprint


def test_recall_is_divided_and_named():
    found, name = tables(Recall(kind="copying_memory", lag=4, symbols=3, number=200, seed=5))
    assert {part: len(table["text"]) for part, table in found.items()} == {"train": 170, "valid": 10, "test": 20}
    assert all(len(text) == 6 for table in found.values() for text in table["text"])
    assert name == {"simulation": "recall of 3 symbols after 4, 200 sequences, seed 5"}
    assert tables(Recall(kind="copying_memory", lag=5, number=200))[1] != name


def test_the_same_pair_of_nouns_is_in_one_part_only():
    found, _ = tables(Pronouns(kind="pronouns", number=3000, farthest=12))
    pairs = {part: set(table["pair"].tolist()) for part, table in found.items()}
    assert set(pairs) == {"train", "valid", "test"}
    assert not pairs["train"] & pairs["test"]
    assert not pairs["train"] & pairs["valid"]
    assert not set(found["train"]["en"]) & set(found["test"]["en"])
    assert set(found["test"]["noun"].tolist()) <= set(found["train"]["noun"].tolist())  # each word was seen
    words = [{word for text in found[part]["de"] for word in text.split()} for part in ("train", "test")]
    assert words[1] <= words[0]


@pytest.mark.parametrize("model", ["rnn", "gru", "lstm", "attention", "transformer"])
def test_recall_recipes_have_one_task(model):
    recipe = Recipe.load(f"text/recall-{model}", {"data.lag": 6, "data.number": 60, "model.dim": 16})
    data = Assembly.open(recipe)
    assert data.objective.classes == list("ABCDEFGH")
    assert data.dataset("train").batch(np.arange(2)).stream.lengths.tolist() == [8, 8]
    base = Recipe.load("text/recall-transformer").to_dict()
    same = Recipe.load(f"text/recall-{model}").to_dict()
    assert all(base[key] == same[key] for key in ("data", "tokens", "objective"))
    assert {key: base["train"][key] for key in ("steps", "batch")} == {
        key: same["train"][key] for key in ("steps", "batch")
    }
    assert (base["model"]["dim"], base["model"]["depth"]) == (same["model"]["dim"], same["model"]["depth"])


def test_files_of_the_same_form(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("Aabc?\nBbbb?\n")
    assert next(pieces(Recall(kind="copying_memory").read([lines])))["text"].tolist() == ["Aabc?", "Bbbb?"]
    both = tmp_path / "both.tsv"
    both.write_text("i like your dog , it is great .\tich mag deinen hund , er ist toll .\n")
    table = next(pieces(Pronouns(kind="pronouns").read([both])))
    assert table["de"].tolist() == ["ich mag deinen hund , er ist toll ."]


def test_what_makes_no_sense():
    with refuses(40, key="data.symbols"):
        Recipe.load("text/recall-rnn", {"data.symbols": 40})
    with refuses(-1, key="data.farthest"):
        Recipe.load("text/pronouns-lstm", {"data.farthest": -1})
