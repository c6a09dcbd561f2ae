"""How samples come together to be judged: short ones with short ones, and every answer at its place."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sciformer.evaluation.evaluate as module
from sciformer.assembly import Assembly
from sciformer.checks.check import check
from sciformer.cli.main import main
from sciformer.evaluation.evaluate import batches, evaluate, one_behind, predict
from sciformer.models.encoder import Encoder
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from sciformer.run import train
from tests.objectives.examples import COUNT, make


def data_of(widths, cuts=()):
    widths = np.array(widths)
    width = int(widths[0]) if len(set(widths.tolist())) == 1 else None
    return SimpleNamespace(widths=widths, width=width, stops=np.array([*sorted(cuts), len(widths)]))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 9), st.none() | st.integers(1, 90), st.data()
)
def test_every_sample_once_and_no_more_than_fit(widths, size, tokens, data):
    count, cuts = data.draw(st.integers(0, len(widths))), data.draw(st.lists(st.integers(0, len(widths)), max_size=2))
    found = list(batches(data_of(widths, cuts), count, size, tokens))
    assert sorted(i for ids in found for i in ids) == list(range(count))
    for ids in found:
        assert 1 <= len(ids) <= size
        assert len(ids) == 1 or tokens is None or len(ids) * max(widths[i] for i in ids) <= tokens


def test_short_ones_come_with_short_ones_of_their_piece():
    widths = np.random.default_rng(0).integers(1, 100, 600)
    padded = sum(len(ids) * widths[ids].max() for ids in batches(data_of(widths), 600, 20))
    assert padded < 1.1 * widths.sum()
    pieces = [set((ids >= 300).tolist()) for ids in batches(data_of(widths, [300]), 600, 20)]
    assert all(len(used) == 1 for used in pieces)
    same = list(batches(data_of([5] * 10), 10, 4))
    assert [ids.tolist() for ids in same] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [len(ids) for ids in batches(data_of([5] * 10), 10, 4, 12)] == [2] * 5


class Parts:
    """What judging needs of an assembly."""

    def __init__(self, tokens, objective):
        self.tokens, self.objective = tokens, objective
        self.recipe = SimpleNamespace(train=SimpleNamespace(seed=0, batch=64))

    carried = Assembly.carried


def step_of(name):
    tokens, objective, dataset = make("text", name, number=np.arange(COUNT))
    torch.manual_seed(0)
    network = Encoder(kind="encoder", dim=8, depth=1, heads=2).build(tokens, objective)
    return Step(network, objective), Parts(tokens, objective), dataset


@pytest.mark.parametrize("name", ["classify", "regress", "masked"])
def test_answers_are_at_their_places(name):
    step, parts, dataset = step_of(name)
    assert dataset.width is None
    dataset.source.notes = ["something is left out."]
    single = evaluate(step, parts, dataset, batch=1)
    assert (single.size, single.notes) == (COUNT, ("something is left out.",))
    for batch, limit in [(2, None), (3, None), (64, None), (3, 20)]:
        found = evaluate(step, parts, dataset, batch=batch, tokens=limit)
        assert found.samples["number"].tolist() == list(range(COUNT))
        assert found.scores["loss"] == pytest.approx(single.scores["loss"], rel=1e-5)
        for key, values in single.outputs.items():
            np.testing.assert_allclose(found.outputs[key], values, rtol=1e-4, atol=1e-5)
    if name != "masked":
        told = predict(step, parts, dataset, batch=3)
        assert told.samples["number"].tolist() == list(range(COUNT))
        key = "probabilities" if name == "classify" else "mean"
        np.testing.assert_allclose(told.outputs[key], single.outputs[key], rtol=1e-4, atol=1e-5)


def test_where_memory_runs_out_halves_are_judged(monkeypatch):
    step, parts, dataset = step_of("classify")
    plain, told = evaluate(step, parts, dataset, batch=2), predict(step, parts, dataset, batch=2)
    sizes, most = [], 3
    encode = step.model.encode

    def small(stream):
        sizes.append(len(stream.columns["ids"]))
        if sizes[-1] > most:
            raise torch.OutOfMemoryError("no memory")
        return encode(stream)

    monkeypatch.setattr(step.model, "encode", small)
    monkeypatch.setattr(module, "evaluation_limits", lambda *given: (4 * given[2], None))
    for call, expected in ((evaluate, plain), (predict, told)):
        found = call(step, parts, dataset, batch=2)
        assert sizes[:2] == [COUNT, 4]
        assert max(size for size in sizes if size <= most) == most
        sizes.clear()
        assert found.samples["number"].tolist() == list(range(COUNT))
        for key, values in expected.outputs.items():
            np.testing.assert_allclose(found.outputs[key], values, rtol=1e-4, atol=1e-5)
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        evaluate(step, parts, dataset, batch=2)
    assert sizes[-1] == 1


def test_a_gpu_judges_more_at_once_but_not_more_long_ones():
    gpu, widths = torch.device("cuda"), [20] * 90 + [200] * 10
    assert module.evaluation_limits(data_of(widths), torch.device("cpu"), 16) == (16, None)
    assert module.evaluation_limits(data_of(widths), gpu, 16, 500) == (64, 2000)
    most = module.evaluation_limits(data_of(widths), gpu, 10)
    assert most == (40, 4 * 10 * 38)
    assert [len(ids) for ids in batches(data_of(widths), 100, *most)] == [40, 40, 10, 7, 3]
    assert module.evaluation_limits(data_of([7] * 100), gpu, 10) == (40, None)


def test_each_is_read_when_the_next_is_under_way():
    seen = []

    def made(count):
        for number in range(count):
            seen.append(f"began {number}")
            yield number

    for number in one_behind(made(3)):
        seen.append(f"read {number}")
    assert seen == ["began 0", "began 1", "read 0", "began 2", "read 1", "read 2"]
    assert not list(one_behind(made(0)))


def write_curves(folder, count=60):
    """Series of two classes, of 6 to 40 points."""
    rng, lines = np.random.default_rng(0), ["name,time,flux,kind"]
    for number in range(count):
        for time in np.sort(rng.uniform(0, 50, rng.integers(6, 40))):
            flux = np.sin(time) + (number % 2) * time / 50
            lines.append(f"star {number},{time:.3f},{flux:.3f},{'ab'[number % 2]}")
    (folder / "curves.csv").write_text("\n".join(lines) + "\n")
    return folder / "curves.csv"


def test_samples_and_windows_have_the_same_numbers_everywhere(tmp_path, capsys):
    file = write_curves(tmp_path)
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "series", "files": [str(file)], "id": "name", "time": "time", "value": "flux"}
            | {"label": "kind", "split": {"valid": 0.2, "test": 0.3}},
            "tokens": {"kind": "observations", "window": 12, "magnitudes": False},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "classify", "label": "label"},
            "train": {"steps": 4, "batch": 8, "warmup": 1, "device": "cpu"},
        }
    )
    checked, run = check(recipe), train(recipe, tmp_path / "run", show=True)
    said = capsys.readouterr()
    samples, windows = run.about["samples"], run.about["windows"]
    assert samples == {"train": 30, "valid": 12, "test": 18}
    assert "train" not in windows  # a random window of each
    assert windows["test"] > 18
    assert (
        f"train 30, valid 12 ({windows['valid']} windows), test 18 ({windows['test']} windows)" in said.out + said.err
    )
    assert {part: checked.figures[f"samples_{part}"] for part in samples} == samples
    assert {part: checked.figures[f"windows_{part}"] for part in windows} == windows
    found, kept = run.evaluate("test"), json.loads((run.path / "scores.json").read_text())["parts"]["test"]
    assert (found.size, found.windows, len(found.outputs["label"])) == (18, windows["test"], 18)
    assert (kept["samples"], kept["judged"], kept["windows"]) == (18, 18, windows["test"])
    assert run.evaluate("test", [file]).size == 60
    part = run.evaluate("test", limit=5)
    assert (part.size, part.windows) == (len(part.outputs["label"]), 5)
    assert len(found.outputs["label"]) == sum(
        row["samples"] for row in run.assembly.objective.details(found.outputs)["Classes"]
    )
    main(["evaluate", str(run.path)])
    said = capsys.readouterr().out
    assert f"the part test, 18 samples in {windows['test']} windows" in said
    assert "too few" in said  # 9 samples of each class
