"""N-grams: against the textbook, written with dictionaries; sums are one; the tokens are those of the recipe."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram import FALLBACK, NGram, discounts, evaluate, texts_of
from sciformer.assembly import Assembly
from sciformer.recipe import Recipe
from sciformer.run import train
from tests.errors import refuses

CHANCE = np.random.default_rng(0)
LONG = CHANCE.zipf(1.6, 4000) % 30
TEXTS = [LONG, CHANCE.integers(30, size=50), [3], []]


def textbook(texts, order, size):
    """p(w | h) with dictionaries, as the paper has it."""
    grams = [
        Counter(tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)) for n in range(order + 1)
    ]
    counts = [None] * (order + 1)
    counts[order] = grams[order]
    for n in range(1, order):
        counts[n] = Counter(gram[1:] for gram in grams[n + 1])

    def p(word, history):
        n = len(history) + 1
        lower = p(word, history[1:]) if history else 1 / size
        after = {gram: c for gram, c in counts[n].items() if gram[:-1] == history}
        total = sum(after.values())
        if not total:
            return lower
        d = discounts(np.array(list(counts[n].values())))
        c = after.get((*history, word), 0)
        left = sum(d[min(c, 3)] for c in after.values())
        return (c - d[min(c, 3)]) / total + left / total * lower

    return p


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_it_is_the_textbook(order):
    texts = [list(map(int, text)) for text in ([*LONG[:300]], TEXTS[1], [3], [])]
    model, p = NGram(order, 30).fit(texts), textbook(texts, order, 30)
    asked = list(map(int, [*LONG[290:330], *CHANCE.integers(30, size=20)]))
    found = model.log_probabilities(asked)
    for i, word in enumerate(asked):
        history = tuple(asked[max(0, i - order + 1) : i])
        assert found[i] == pytest.approx(math.log(p(word, history)), abs=1e-9)
        assert math.log(model.probabilities(history)[word]) == pytest.approx(found[i], abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), max_size=60), min_size=1, max_size=4), st.integers(1, 5), st.data())
def test_probabilities_sum_to_one(texts, order, data):
    if not any(texts):
        texts = [[1, 2]]
    model = NGram(order, 8).fit(texts)
    for _ in range(4):
        history = data.draw(st.lists(st.integers(0, 7), max_size=6))
        p = model.probabilities(history)
        assert p.sum() == pytest.approx(1, abs=1e-9)
        assert (p > 0).all()
        again = [model.log_probabilities([*history, word])[-1] for word in range(8)]
        assert np.exp(again) == pytest.approx(p)


def test_discounts_by_hand():
    counts = np.repeat([1, 2, 3, 4, 9], [100, 30, 12, 6, 5])
    y = 100 / 160
    expected = [0, 1 - 2 * y * 0.3, 2 - 3 * y * 0.4, 3 - 4 * y * 0.5]
    assert discounts(counts) == pytest.approx(expected)
    assert discounts(np.array([1, 1, 2])).tolist() == list(FALLBACK)
    assert discounts(np.repeat([1, 2, 3, 4], [10, 1, 50, 1])).tolist() == list(FALLBACK)  # they would be negative


def test_it_is_judged_on_the_tokens_of_the_recipe(tmp_path):
    words = "the cat sat on the mat\nand the dog sat on the cat\n\n"
    for part, times in (("train", 40), ("valid", 3), ("test", 5)):
        (tmp_path / part).write_text(words * times + "a new end\n")
    names = {"data.files": "train", "data.valid": "valid", "data.test": "test"}
    changes = {key: [str(tmp_path / name)] for key, name in names.items()}
    changes |= {"model.dim": 16, "model.heads": 2, "model.depth": 1, "tokens.context": 8, "train.steps": 2}
    recipe = Recipe.load("text/wikitext-gpt", changes | {"train.batch": 4, "train.device": "cpu", "train.warmup": 1})
    run = train(recipe, tmp_path / "run", show=False, report=False)
    found = {order: evaluate(run, "test", order) for order in (1, 3)}
    assert found[3]["tokens"] == run.evaluate("test").count == 5 * 16 + 4 - 1
    assert found[3] == evaluate(recipe, "test", 3)
    assert 1 < found[3]["perplexity"] < 2 < found[1]["perplexity"]
    assert math.log(found[3]["perplexity"]) == pytest.approx(found[3]["loss"])
    (ids,) = texts_of(Assembly.open(recipe), "test")
    assert recipe.tokens.kind == "text"
    assert len(ids) == 5 * 16 + 4
    assert evaluate(str(run.path), "valid", 2)["tokens"] == 3 * 16 + 4 - 1
    with refuses("train, valid, test", "'nothing'"):
        evaluate(run, "nothing")
