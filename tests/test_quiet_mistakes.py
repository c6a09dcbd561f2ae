"""Mistakes that nobody would notice: each was made once."""

import numpy as np
import torch

from sciformer.assembly import Assembly
from sciformer.errors import nearest, one_of
from sciformer.evaluation.evaluate import evaluate, predict
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from tests.errors import refuses

TRAIN = {"steps": 2, "batch": 4, "warmup": 0, "device": "cpu"}
MODEL = {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2}


def assembled(folder, objective, tokens=None, split=None, **columns):
    np.savez(folder / "x.npz", **columns)
    data = {"kind": "arrays", "files": [str(folder / "x.npz")], "split": split or {"valid": 0.2, "test": 0.2}}
    tokens = tokens or {"kind": "patches", "patch": 2}
    sections = {"data": data, "tokens": tokens, "model": MODEL, "objective": objective, "train": TRAIN}
    return Assembly.open(Recipe.from_dict(sections))


def step_of(assembly):
    return Step(assembly.network(), assembly.objective)


def images(count):
    return np.random.default_rng(0).normal(size=(count, 4, 4)).astype(np.float32)


def test_values_far_from_zero_keep_their_digits(tmp_path):
    days = 2459000.5 + 0.003 * np.random.default_rng(0).normal(size=40)
    made = assembled(tmp_path, {"kind": "regress", "targets": ["day"]}, image=images(40), day=days)
    found = evaluate(step_of(made), made, made.dataset("test"))
    assert 1e-4 < found.scores["rmse"] < 0.1
    assert set(found.outputs["target"][:, 0]) <= set(days)
    told = predict(step_of(made), made, made.dataset("test"))
    assert len(np.unique(told.outputs["mean"])) == len(told.outputs["mean"]) > 1


def test_a_long_text_is_one_sample_with_one_answer(tmp_path):
    texts = np.array(["ab" * (3 * i + 1) for i in range(20)])
    tokens = {"kind": "text", "context": 8}
    made = assembled(tmp_path, {"kind": "classify"}, tokens, text=texts, label=np.arange(20) % 2, number=np.arange(20))
    step, part = step_of(made), made.dataset("train")
    found = evaluate(step, made, part)
    assert len(part) > len(found.outputs["label"]) == len(np.unique(found.samples["number"])) == 12
    assert found.samples["number"].tolist() == made.splits.sources["train"].load(0)["number"].tolist()
    windows = part.batch(np.arange(len(part)))
    first = windows.samples["window of"] == 1
    alone = evaluate(step, made, made.samples(made.splits.sources["train"]), batch=1)
    np.testing.assert_allclose(alone.outputs["probabilities"], found.outputs["probabilities"], atol=1e-6)
    assert first.sum() == -(-len(made.splits.sources["train"].load(0)["text"][1]) // 8)
    assert windows.stream.lengths.sum() == sum(map(len, made.splits.sources["train"].load(0)["text"]))


def test_small_files_are_shuffled_with_each_other(tmp_path):
    for i in range(60):
        (tmp_path / f"{i:02}.txt").write_text(chr(97 + i % 26) * 300)
    sections = {"data": {"kind": "text", "files": [str(tmp_path / "*.txt")]}, "tokens": {"kind": "text", "context": 8}}
    sections |= {"model": {"kind": "decoder", "dim": 8}, "objective": {"kind": "next_token"}, "train": TRAIN}
    recipe = Recipe.from_dict(sections)
    made = Assembly.open(recipe)
    assert len(made.dataset("train").sizes) == 1
    small = Assembly.open(recipe.change({"data.chunk_size": 1024}))
    assert len(small.dataset("train").sizes) > 10
    # In many pieces windows follow each other, so that a pass over all of them is a pass over the text.
    assert len(small.dataset("train")) < len(made.dataset("train")) / 4
    assert (small.dataset("train").all().stream.lengths == 9).all()


def test_a_class_that_only_others_have_is_found_before_training(tmp_path):
    label = np.zeros(30, int)
    label[::3] = 1
    rows = assembled(tmp_path, {"kind": "classify"}, image=images(30), label=label).splits.sources["valid"].rows[0]
    label[rows[0]] = 7
    with refuses("`valid`", 7):
        assembled(tmp_path, {"kind": "classify"}, image=images(30), label=label)


def test_negative_weights_are_refused(tmp_path):
    weight = np.where(np.arange(20) % 2, 1.0, -1.0)
    columns = {"image": images(20), "label": np.arange(20) % 2, "w": weight}
    made = assembled(tmp_path, {"kind": "classify", "weight": "w"}, **columns)
    with refuses("`w`"):
        evaluate(step_of(made), made, made.dataset("train"))


def test_a_column_called_answer_is_no_truth(tmp_path):
    made = assembled(tmp_path, {"kind": "classify"}, image=images(20), label=np.arange(20) % 2)
    others = made.samples({"image": images(5), "answer": np.zeros(5, int)})
    with refuses("label"):
        evaluate(step_of(made), made, others)


def test_whole_numbers_are_classes_whatever_their_type(tmp_path):
    made = assembled(tmp_path, {"kind": "classify"}, image=images(20), label=np.arange(20) % 2 * 1.0)
    same = made.samples({"image": images(6), "label": np.arange(6) % 2})
    assert evaluate(step_of(made), made, same).outputs["label"].tolist() == [0, 1, 0, 1, 0, 1]


def test_two_kinds_of_tokens_are_refused_in_words(tmp_path):
    tokens = {"a": {"kind": "patches", "patch": 2}, "b": {"kind": "patches", "patch": 4}}
    made = assembled(tmp_path, {"kind": "classify"}, tokens, image=images(20), label=np.arange(20) % 2)
    with refuses("encoder", 2, "a, b", key="tokens"):
        made.network()


def test_no_part_to_choose_on_is_said(tmp_path):
    from sciformer.comparison.compare import compare

    columns = {"image": images(24), "label": np.arange(24) % 2}
    made = assembled(tmp_path, {"kind": "classify"}, None, {"valid": 0.0, "test": 0.3}, **columns)
    torch.manual_seed(0)
    found = compare(
        [made.recipe], 1, tmp_path / "runs", {"train.learning_rate": [1e-3, 1e-2]}, show=False, report=False
    )
    assert "There is no part `valid` to choose the grid point with." in found.warnings


def test_names_that_share_only_their_collection_are_not_near():
    momenta = ["part_px", "part_py", "part_pz"]
    assert "part_py" in nearest("part_pyy", momenta)
    assert not nearest("part_energy", momenta).startswith("Did you mean")
    assert nearest("part_energy", [*momenta, "part_enrgy"]).startswith("Did you mean 'part_enrgy'")


def test_the_nearest_name_is_found_whatever_its_letters():
    with refuses("QCD, Top", "'Qcd'", hint="'QCD'"):
        one_of("a class", "Qcd", ["QCD", "Top"])
