import numpy as np
import pytest
import torch

from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.evaluation.evaluate import evaluate, predict
from sciformer.objectives.classify import Classify
from sciformer.objectives.regress import Regress
from tests.errors import refuses
from tests.objectives.examples import COUNT, OBJECTIVES, TRUTH, assembly_of, frozen_step_of, make, make_table, ready


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("weight", ["", "weight"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_classify_against_a_loop(balance, weight, smoothing):
    parts = make("patches", Classify(kind="classify", balance=balance, weight=weight, smoothing=smoothing))
    batch, step = ready(parts), frozen_step_of(parts)
    assert parts[1].state == {"classes": ["down", "left", "up"], "counts": [2, 1, 4]}
    inputs = batch.inputs()
    loss, found = step(inputs, True)
    logp = step.model.heads["class"](step.model.pool(step.model.encode(inputs.stream))).log_softmax(-1)
    total = count = 0.0
    for i, name in enumerate(TRUTH["label"]):
        place = ["down", "left", "up"].index(name)
        share = [7 / (3 * 2), 7 / (3 * 1), 7 / (3 * 4)][place] if balance else 1
        share *= TRUTH["weight"][i] if weight else 1
        wanted = torch.full((3,), smoothing / 3)
        wanted[place] += 1 - smoothing
        total += share * float(-(wanted * logp[i]).sum())
        count += share
    assert abs(float(loss) - total) < 1e-4
    assert abs(float(step(inputs)[0]) - total) < 1e-4
    assert abs(batch.count - count) < 1e-5
    torch.testing.assert_close(found["probabilities"], logp.exp())
    assert found["label"].tolist() == [2, 0, 2, 1, 2, 0, 2]
    if balance and not weight:
        assert abs(batch.count - COUNT) < 1e-5  # over the training data, weights are one on average


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.arange(COUNT) % 3 * 5, ["0", "5", "10"]),
        (np.arange(COUNT) % 2 == 0, ["False", "True"]),
        (np.arange(COUNT) % 2 * 1.0, ["0", "1"]),
        (np.array(list("babbaba"), object), ["a", "b"]),
        (np.array([b"x", b"y"] * 3 + [b"x"]), ["x", "y"]),
    ],
)
def test_classes_of_every_type(labels, classes):
    parts = make("text", "classify", label=labels)
    assert parts[1].classes == classes
    batch = ready(parts)
    order = np.unique(labels).tolist()
    assert [order[i] for i in batch.samples["target answer"]] == labels.tolist()
    named = make("text", Classify(kind="classify", label="answer"), answer=labels)
    assert frozen_step_of(named)(ready(named).inputs())[0].isfinite()


@pytest.mark.parametrize(
    ("labels", "key", "mention", "hint"),
    [
        (np.linspace(0, 1, COUNT), "objective.label", "`label`", "regress"),
        (np.where(np.arange(COUNT) == 3, np.nan, 1.0), None, "sample 3", ""),
        (np.full(COUNT, "up"), "objective.label", "1: up", ""),
        (np.eye(COUNT), "objective.label", f"(n, {COUNT})", ""),
    ],
)
def test_labels_that_are_refused(labels, key, mention, hint):
    with refuses("`label`", mention, key=key, hint=hint):
        make("text", "classify", label=labels)


@pytest.mark.parametrize(("label", "word"), [(1.5, "1.5"), (np.nan, "nan"), (np.inf, "inf")])
def test_numbers_that_are_no_class_are_not_taken_for_one(label, word):
    whole = np.arange(COUNT) % 2 * 1.0
    objective = make("text", "classify", label=whole)[1]
    other = make("text", "regress", label=np.where(np.arange(COUNT) == 3, label, whole))[2]
    with refuses("`valid`", "0, 1", f": {word}"):
        objective.validate_split("valid", other)


def test_labels_that_were_never_seen_and_none_at_all():
    parts = make("text", "classify")
    tokens, objective, _ = parts
    other = make("text", "classify", label=np.array(["up", "down"] * 3 + ["sideways"]))[2]
    ids = np.arange(COUNT)
    with refuses("down, left, up", "'sideways' in sample 6"):
        prepare(other.batch(ids), tokens, objective, SampleRandom(0, 0, ids), training=False)
    found = predict(frozen_step_of(parts), assembly_of(parts), other)  # who predicts need not know
    assert found.outputs["probabilities"].shape == (COUNT, 3)
    assert found.samples["label"][-1] == "sideways"
    blind = make_table("text")
    for name in TRUTH:
        blind.pop(name)
    for name in ("classify", "regress"):
        parts = make("text", name)
        assembly, step = assembly_of(parts), frozen_step_of(parts)
        dataset = assembly.samples(blind)
        assert dataset.windows.tokens == 16
        assert len(next(iter(predict(step, assembly, dataset).outputs.values()))) == COUNT
        with refuses("`label`" if name == "classify" else "`target, other`"):
            evaluate(step, assembly, dataset)


@pytest.mark.parametrize("batch", [2, 3, 64])
@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "next_token"])
def test_judging_does_not_know_the_size_of_a_batch(name, batch):
    parts = make("text", name)
    step, assembly = frozen_step_of(parts), assembly_of(parts)
    one, other = (evaluate(step.train(), assembly, parts[2], batch=size) for size in (batch, COUNT))
    assert step.training
    assert one.scores.keys() == other.scores.keys() == {"loss", *parts[1].standard}
    for key in one.scores:
        np.testing.assert_allclose(one.scores[key], other.scores[key], rtol=1e-4)
    for key in one.outputs:
        np.testing.assert_allclose(one.outputs[key], other.outputs[key], rtol=1e-3, atol=1e-5)
    assert evaluate(step, assembly, parts[2], limit=3).count <= 12
    assert one.samples["label"].tolist() == TRUTH["label"].tolist()


def test_regress_against_a_loop():
    parts = make("patches", "regress")
    batch, step = ready(parts), frozen_step_of(parts)
    values = np.stack([TRUTH["target"], TRUTH["other"]], 1)
    np.testing.assert_allclose(parts[1].state["mean"], values.mean(0))
    np.testing.assert_allclose(parts[1].state["deviation"], values.std(0))
    inputs = batch.inputs()
    loss, found = step(inputs, True)
    plain = parts[1].units({key: found[key].detach().double().numpy() for key in ("mean", "std")}, batch.samples)
    np.testing.assert_array_equal(plain["target"], values)
    spread = torch.tensor(values.std(0))
    mean, std = (torch.tensor(plain[key]) for key in ("mean", "std"))
    each = (std / spread).log() + ((torch.tensor(values) - mean) / std) ** 2 / 2 + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(float(loss), float(each.sum()), rtol=1e-4)
    assert batch.count == COUNT
    answers = parts[1].predict(step.model, inputs)
    torch.testing.assert_close(answers["mean"], found["mean"])
    torch.testing.assert_close(answers["std"], found["std"])


@pytest.mark.parametrize(
    ("values", "key", "mentions"),
    [
        (np.where(np.arange(COUNT) == 4, np.nan, 1.0 * np.arange(COUNT)), None, ("NaN", "sample 4")),
        (np.full(COUNT, 3), "objective.targets", ("3.0",)),
        (np.zeros((COUNT, 2)), "objective.targets", ("float64", "(n, 2)")),
        (np.full(COUNT, "1.5"), "objective.targets", ("<U3",)),
    ],
)
def test_values_that_are_refused(values, key, mentions):
    with refuses("target", *mentions, key=key):
        make("text", Regress(kind="regress"), target=values)


def test_a_missing_truth_is_found_when_it_is_judged():
    parts = make("text", "regress")
    hole = make("text", "regress")[2].source.table | {"target": np.where(np.arange(COUNT) == 5, np.inf, 260.0)}
    assembly, step = assembly_of(parts), frozen_step_of(parts)
    with refuses("target, other", "sample 5"):
        evaluate(step, assembly, assembly.samples(hole))
    assert np.isfinite(predict(step, assembly, assembly.samples(hole)).outputs["mean"]).all()
    with refuses("'mass'", "target"):
        make("text", Regress(kind="regress", targets=["mass"]))
