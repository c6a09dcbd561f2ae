"""Tags of words: on the first token of each, through windows and subwords, judged by entities and answered in words."""

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.data.columns import Lists
from sciformer.evaluation.evaluate import evaluate, predict
from sciformer.evaluation.predictions import write_predictions
from sciformer.metrics.text import entity_f1
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.errors import refuses
from tests.objectives.examples import shaken
from tests.training.tiny import with_changes

SENTENCES = [
    ("Anna saw Berlin", "B-person O B-place"),
    ("the river Spree", "O O B-place"),
    ("Anna Maria met Otto in New York", "B-person I-person O B-person O B-place I-place"),
    ("nothing", "O"),
    ("Otto likes Bergen aan Zee", "B-person O B-place I-place I-place"),
]


def table_of(pairs, truth=True):
    words, tags = ([pair[i].split() for pair in pairs] for i in (0, 1))
    lengths = np.array([len(one) for one in words], np.int64)
    columns = {"words": Lists(np.array([word for one in words for word in one], object), lengths)}
    return columns | ({"tags": Lists(np.array([tag for one in tags for tag in one], object), lengths)} if truth else {})


def write(path, pairs):
    lines = ["\n".join(f"{w}\t{t}" for w, t in zip(words.split(), tags.split())) for words, tags in pairs]
    path.write_text("\n\n".join(lines) + "\n")
    return str(path)


def recipe_of(tmp_path, unit="words", context=16, **changes):
    files = {part: [write(tmp_path / f"{part}.conll", SENTENCES)] for part in ("train", "valid")}
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "conll", "files": files["train"], "valid": files["valid"]},
            "tokens": {"kind": "text", "column": "words", "unit": unit, "context": context},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2, "position": "none"},
            "objective": {"kind": "tag"},
            "train": {"steps": 4, "batch": 2, "device": "cpu"},
        }
    )
    return with_changes(recipe, changes)


def pieces(tmp_path, context=16, **changes):
    return recipe_of(tmp_path, "wordpiece", context, tokens__vocabulary=48, **changes)


def test_a_tag_sits_on_the_first_token_of_its_word(tmp_path):
    made = Assembly.open(pieces(tmp_path, 64))
    assert made.objective.answers == ["B-person", "B-place", "I-person", "I-place", "O"]
    batch = made.dataset("train").all()
    prepared = made.objective.corrupt(batch, made.tokens, None)
    stream, names = prepared.stream, np.array(made.objective.answers)
    assert (stream.lengths > [len(words.split()) for words, _ in SENTENCES]).any()  # words are in several tokens
    for row, (words, tags) in enumerate(SENTENCES):
        mine = stream.take(np.array([row])).columns
        found = mine["target answer"]
        assert names[found[found >= 0]].tolist() == tags.split()
        word = mine["word"]
        expected = [i == 0 or word[i] != word[i - 1] for i in range(len(word))]
        assert (found >= 0).tolist() == expected
        assert mine["item"][found >= 0].tolist() == list(range(len(words.split())))
    assert made.objective.count(prepared) == sum(len(tags.split()) for _, tags in SENTENCES)


@pytest.mark.parametrize("packed", [False, True])
def test_the_loss_against_a_loop(tmp_path, packed):
    made = Assembly.open(pieces(tmp_path, objective__constrained=False))
    step = Step(shaken(made.network()).double(), made.objective).eval().requires_grad_(False)
    found = evaluate(step, made, made.dataset("valid"), batch=3)
    total = right = count = 0
    for words, tags in SENTENCES:
        one = made.samples(table_of([(words, tags)]))
        inputs = made.objective.corrupt(one.all(), made.tokens, None).inputs(packed=packed)
        logp = step.model.heads["tag"](step.model.tokens(step.model.encode(inputs.stream))).log_softmax(-1)
        item = one.all().stream.columns["item"]
        for place, number in enumerate(item):
            if number >= 0:
                wanted = made.objective.answers.index(tags.split()[number])
                scores = logp.flatten(0, -2)[place]
                total, right, count = total - float(scores[wanted]), right + int(scores.argmax() == wanted), count + 1
        alone = step(inputs)[0]
        assert alone.isfinite()
    assert count == found.count == 19
    np.testing.assert_allclose(found.scores["loss"], total / count, rtol=1e-5)
    assert found.scores["token_accuracy"] == right / count


@pytest.mark.parametrize("context", [3, 4, 5, 16])
def test_windows_of_long_sentences_change_no_answer(tmp_path, context):
    """A model that sees each token by itself must not notice where its windows end."""
    made = Assembly.open(pieces(tmp_path, context, model__depth=0))
    step = Step(shaken(made.network()), made.objective).eval()
    table = table_of(SENTENCES)
    found = evaluate(step, made, made.samples(table), batch=2)
    whole = Assembly.open(pieces(tmp_path, 64, model__depth=0))
    same = Step(whole.network(), whole.objective).eval()
    same.model.load_state_dict(step.model.state_dict())
    expected = evaluate(same, whole, whole.samples(table))
    assert found.count == expected.count == 19
    assert [list(one) for one in found.outputs["tags"]] == [list(one) for one in expected.outputs["tags"]]
    assert [" ".join(one) for one in found.outputs["truth"]] == [tags for _, tags in SENTENCES]
    for name in expected.scores:
        np.testing.assert_allclose(found.scores[name], expected.scores[name], rtol=1e-5)
    np.testing.assert_array_equal(found.outputs["count"], expected.outputs["count"])
    assert found.scores["entity_f1"] == entity_f1(found.outputs["tags"], found.outputs["truth"])
    assert made.objective.details(found.outputs)["Entities"][0].keys() >= {"entity", "precision", "recall", "F1"}
    blind = predict(step, made, made.samples(table_of(SENTENCES, truth=False)), batch=2)
    assert [list(one) for one in blind.outputs["tags"]] == [list(one) for one in expected.outputs["tags"]]
    assert "truth" not in blind.outputs
    assert [" ".join(one) for one in blind.samples["words"]] == [words for words, _ in SENTENCES]


def test_layout_and_company_change_nothing(tmp_path):
    made = Assembly.open(pieces(tmp_path))
    step = Step(shaken(made.network()).double(), made.objective).eval().requires_grad_(False)
    batch = made.objective.corrupt(made.dataset("valid").all(), made.tokens, None)

    def of(inputs):
        loss, found = step(inputs, True)
        named = made.objective.units({name: value.numpy() for name, value in found.items()}, batch.samples)
        named = made.objective.finish(named)
        return float(loss), [one.tolist() for one in named["tags"]], named["loss"].tolist(), float(step(inputs)[0])

    junk = batch.inputs(multiple=16)
    for column in junk.stream.columns.values():
        column[~junk.stream.valid] = 2
    expected = of(batch.inputs())
    for inputs in (batch.inputs(packed=True), junk):
        loss, tags, each, quick = of(inputs)
        assert tags == expected[1]
        np.testing.assert_allclose([loss, quick, *each], [expected[0], expected[0], *expected[2]], rtol=1e-6)


def test_words_that_make_no_token_are_outside(tmp_path):
    made = Assembly.open(pieces(tmp_path))
    step = Step(shaken(made.network()), made.objective).eval()
    strange = [("Anna \u200b Otto \u200b", "B-person B-place O O")]  # the tokenizer throws such characters away
    dataset = made.samples(table_of(strange))
    assert (dataset.all().stream.columns["item"] >= 0).sum() == 2
    found = evaluate(step, made, dataset)
    (tags,) = found.outputs["tags"]
    assert len(tags) == 4
    assert tags[1] == tags[3] == "O"
    assert found.count == 2


def test_tags_that_were_never_seen_are_mistakes_but_no_error(tmp_path):
    made = Assembly.open(recipe_of(tmp_path))
    step = Step(shaken(made.network()), made.objective).eval()
    found = evaluate(step, made, made.samples(table_of([("Anna saw Berlin", "B-person O B-beast")])))
    assert found.count == 2
    assert found.outputs["count"].tolist() == [3]
    assert found.outputs["truth"][0].tolist() == ["B-person", "O", "B-beast"]
    assert found.scores["entity_recall"] < 1


def test_parts_of_speech_have_no_entities(tmp_path):
    path = write(tmp_path / "pos.conll", [("a dog barks", "DT NN VB"), ("dogs bark", "NN VB"), ("a cat", "DT NN")])
    made = Assembly.open(recipe_of(tmp_path, data__files=[path], data__valid=[path]))
    assert made.objective.chosen() == ["token_accuracy"]
    found = evaluate(Step(made.network(), made.objective), made, made.dataset("train"))
    assert found.scores.keys() == {"loss", "token_accuracy"}
    assert made.objective.details(found.outputs) == {}


def test_a_run_learns_tags_and_writes_them(tmp_path):
    torch.manual_seed(0)
    recipe = recipe_of(tmp_path, train__steps=60, train__learning_rate=0.05, train__warmup=1, train__best="entity_f1")
    run = train(recipe, tmp_path / "run", show=False)
    assert run.scores["entity_f1"] == 1.0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Entities (valid)" in page
    assert "lists, 19 entries in all" in page
    assert "person" in page
    predicted = Run(tmp_path / "run").predict([tmp_path / "valid.conll"])
    assert [" ".join(one) for one in predicted["tags"]] == [tags for _, tags in SENTENCES]
    for suffix in (".csv", ".npz", ".conll"):
        assert write_predictions(Run(tmp_path / "run"), [tmp_path / "valid.conll"], tmp_path / f"p{suffix}") == 5
    rows = [line.split(",") for line in (tmp_path / "p.csv").read_text().splitlines()]
    assert rows[0] == ["sentence", "line", "word", "truth", "tag", "probability"]
    assert [row[:5] for row in rows[3:5]] == [["1", "3", "Berlin", "B-place", "B-place"], ["2", "5", "the", "O", "O"]]
    assert all(0.5 < float(row[5]) <= 1 for row in rows[1:])
    assert (tmp_path / "p.conll").read_text().splitlines()[4] == "the\tO\tO"  # as conlleval reads it
    with np.load(tmp_path / "p.npz") as stored:
        assert stored["tag"][[12, 13]].tolist() == ["I-place", "O"]
        assert stored["tag_lengths"].tolist() == [3, 3, 7, 1, 5]


@pytest.mark.parametrize("unit", ["characters", "bytes"])
def test_characters_have_no_words(tmp_path, unit):
    with refuses("15 tokens", "sample 0", "3 labels"):
        Assembly.open(recipe_of(tmp_path, unit))


def test_mistakes(tmp_path):
    made = Assembly.open(recipe_of(tmp_path))
    short = table_of(SENTENCES[:2]) | {"tags": Lists(np.array(["O"] * 5, object), np.array([3, 2]))}
    with refuses("3 words", "sample 1", "2 labels"):
        made.samples(short)
    with refuses("`tags`"):
        made.samples(table_of(SENTENCES[:2], truth=False) | {"tags": np.array(["O", "O"])})
    with refuses("`tags`", key="objective.label"):
        evaluate(Step(made.network(), made.objective), made, made.samples(table_of(SENTENCES, truth=False)))
    with refuses("`tags`", "1: O", key="objective.label"):
        Assembly.open(recipe_of(tmp_path, data__files=[write(tmp_path / "o.conll", [("a b", "O O")] * 3)]))
    with refuses("'names'"):
        Assembly.open(recipe_of(tmp_path, objective__label="names"))
