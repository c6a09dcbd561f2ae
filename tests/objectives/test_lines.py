"""Classes of texts, line by line: every pooling and trunk learns them, and long lines are judged window by window."""

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.domains.text.tokens import as_table
from sciformer.evaluation.evaluate import predict
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from sciformer.run import train
from tests.objectives.examples import shaken
from tests.training.tiny import with_changes

GOOD, BAD, OTHER = ["fine", "lovely", "great"], ["dull", "awful", "poor"], ["a", "film", "the", "plot", "is"]
TRAIN = {"steps": 60, "batch": 16, "learning_rate": 0.02, "warmup": 5, "evaluate_every": 20, "device": "cpu"}


def write(path, count=80):
    rng = np.random.default_rng(0)
    lines = []
    for n in range(count):
        words = [*rng.choice(OTHER, rng.integers(1, 6)), rng.choice(GOOD if n % 2 else BAD)]
        lines.append(f"{'pos' if n % 2 else 'neg'}\t{' '.join(rng.permutation(words))}")
    path.write_text("label\ttext\n" + "\n".join(lines) + "\n")
    return str(path)


def recipe_of(tmp_path, **changes):
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "lines", "files": [write(tmp_path / "a.tsv")], "split": {"valid": 0.2, "test": 0.0}},
            "tokens": {"kind": "text", "unit": "words", "context": 8},
            "model": {"kind": "encoder", "dim": 16, "depth": 1, "heads": 2},
            "objective": {"kind": "classify"},
            "train": TRAIN,
        }
    )
    return with_changes(recipe, changes)


@pytest.mark.parametrize(
    "model",
    [
        {"pool": "mean", "depth": 0, "position": "none", "norm": "none"},  # a bag of words
        {"pool": "mean"},
        {"pool": "max"},
        {"pool": "class_token"},
        {"pool": "max", "trunk": "convolution", "kernel": 3},
        {"pool": "last", "trunk": "lstm"},
    ],
    ids=str,
)
def test_every_model_learns_a_word_that_decides(tmp_path, model):
    changes = {f"model__{key}": value for key, value in model.items()}
    run = train(recipe_of(tmp_path, **changes), tmp_path / "run", show=False, report=False)
    assert run.scores["accuracy"] == 1.0


@pytest.mark.parametrize("pool", ["mean", "max", "class_token", "attention"])
def test_a_line_longer_than_the_context_is_the_mean_of_its_windows(tmp_path, pool):
    made = Assembly.open(recipe_of(tmp_path, model__pool=pool, tokens__context=3))
    step = Step(shaken(made.network()), made.objective).eval()
    texts = ["a film is lovely the plot is poor", "great", "", "dull dull dull", "the unheard of"]
    found = predict(step, made, made.samples(as_table(texts)), batch=2).outputs["probabilities"]
    assert found.shape == (5, 2)
    assert np.isfinite(found).all()
    for row, text in enumerate(texts):
        words = text.split()
        parts = [" ".join(words[i : i + 3]) for i in range(0, max(1, len(words)), 3)]
        with torch.no_grad():
            alone = predict(step, made, made.samples(as_table(parts))).outputs["probabilities"]
        np.testing.assert_allclose(found[row], alone.mean(0), atol=1e-6)
