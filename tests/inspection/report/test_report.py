"""A report is written for every kind of run, says what came out, and copes with what is gone."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sciformer.inspection import attention
from sciformer.inspection.report import figures, page, report
from sciformer.inspection.report.figures import inspect_run
from sciformer.inspection.report.page import Page
from sciformer.inspection.report.report import write_report
from sciformer.metrics.crossing import crossing
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.errors import refuses
from tests.inspection.report.test_page import Reader
from tests.models.sections import model_keys

EVIL = "<script>alert('x')</script>"
SECTIONS = ["Run", "Data", "Training", "Scores", "Attention", "Cost", "How to reproduce"]
TEXT = {
    "data": {"kind": "text", "files": ["t.txt"]},
    "tokens": {"kind": "text", "context": 24},
    "objective": {"kind": "next_token"},
}
FOLLOWED = {"attention", "rollout", "attribution", "gradient", "least attended"}
KINDS = {
    "classify": {},
    "regress": {"objective": {"kind": "regress", "targets": ["temperature", "other"], "plot_against": "temperature"}},
    "masked": {"objective": {"kind": "masked", "mask_ratio": 0.3}},
    "text": {**TEXT, "model": {"kind": "decoder"}},
    "lstm": {"model": {"trunk": "lstm"}},
    "convolution": {"model": {"trunk": "convolution", "depth": 1}},
    "recurrent text": {**TEXT, "model": {"kind": "decoder", "trunk": "gru"}},
    "alone": {"data": {"split": {"valid": 0.0, "test": 0.0}}, "train": {"steps": 1, "log_every": 10}},
}


@pytest.fixture(autouse=True, scope="module")
def _coarse():
    """Pictures of few dots: they are drawn all the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "DOTS_PER_INCH", 24)
        yield


def write_data(folder, seed=0):
    rng = np.random.default_rng(seed)
    temperature = np.tile(np.linspace(1, 3, 10), 12)
    cold = np.where(temperature < 2, 0.95, 0.5)[:, None, None]
    columns = {"label": (temperature > 2).astype(int), "temperature": temperature, "chain": np.arange(120) // 10}
    image = np.where(rng.random((120, 8, 8)) < cold, 1, -1).astype(np.int8)
    np.savez(folder / "a.npz", image=image, other=rng.normal(size=120), name=np.array([EVIL] * 120), **columns)
    (folder / "t.txt").write_text(f"To be, or not: {EVIL} $a$ 日本\n" * 30)


def recipe(folder, **changes):
    sections = {
        "about": {"title": f"Phases {EVIL}", "paper": "arXiv 1234.56789"},
        "data": {"kind": "arrays", "files": ["a.npz"], "split": {"by": "chain", "valid": 0.25, "test": 0.25}},
        "tokens": {"kind": "patches", "patch": 2, "periodic": True},
        "model": {"kind": "encoder", "dim": 16, "depth": 2, "heads": 2},
        "objective": {"kind": "classify", "plot_against": "temperature", "reference": 2.0},
        "train": {"steps": 5, "batch": 16, "learning_rate": 1e-2, "warmup": 1, "log_every": 2, "device": "cpu"},
    }
    for name, values in changes.items():
        sections[name] = values if "kind" in values and name != "model" else {**sections[name], **values}
    sections["data"]["files"] = [str(folder / name) for name in sections["data"]["files"]]
    return Recipe.from_dict(sections | {"model": model_keys(**sections["model"])})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs by their kind, trained when asked for, once."""
    folder, made = tmp_path_factory.mktemp("report"), {}
    write_data(folder)

    def get(kind):
        if kind not in made:
            run = folder / kind.replace(" ", "-")
            made[kind] = train(recipe(folder, **KINDS[kind]), run, show=False, report=False).path
        return Run(made[kind])

    return get


@pytest.fixture
def quick(monkeypatch):
    """Figures are made but not drawn, where the words are what matters."""
    monkeypatch.setattr(Page, "figure", lambda self, figure, caption, alt: self.text(caption))


@pytest.fixture
def fresh(tmp_path, quick):
    """A run whose files may be broken."""
    write_data(tmp_path)
    return train(recipe(tmp_path), tmp_path / "run", show=False, report=False)


def read(run):
    """The page, its sections and plain text, and the numbers beside it."""
    path = write_report(run)
    assert path == run.folder.report
    found = Reader(path.read_text())
    sections = [text for tag, text in found.texts if tag == "h2"]
    numbers = json.loads((run.path / "scores.json").read_text(), parse_constant=pytest.fail)
    return found, sections, " ".join(text for _, text in found.texts), numbers


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_report(trained, kind, request):
    if kind != "classify":
        request.getfixturevalue("quick")
    run = trained(kind)
    found, sections, text, numbers = read(run)
    along = bool(run.recipe.objective.plot_against)
    answers = kind in ("classify", "regress", "lstm", "convolution", "alone")
    more = [*["Attribution"] * answers, *["Masked tokens"] * (kind == "masked")]
    assert sections == [*SECTIONS[:4], *["Predictions"] * along, SECTIONS[4], *more, *SECTIONS[5:]]
    assert "The best model is from step" in text
    assert ("on training samples" in text) is (kind == "alone")
    assert "script" not in found.tags
    assert f"Phases {EVIL}" in text
    parts = {"text": {"valid"}, "recurrent text": {"valid"}, "alone": {"train"}}.get(kind, {"valid", "test"})
    assert set(numbers["parts"]) == parts
    part = "valid" if "valid" in parts else "train"
    assert numbers["parts"][part]["scores"]["loss"] == pytest.approx(run.scores["loss"], rel=1e-5)
    attends = kind in ("classify", "regress", "masked", "text", "alone")
    assert ("no attention" in text) is not attends
    assert ("reach" in numbers) is attends
    assert ("reach_along" in numbers) is (attends and along)
    assert ("positions" in numbers) is ("depth" in numbers) is attends
    ways = numbers.get("faithfulness", {}).get("ratio", {})
    assert set(ways) == (set() if not answers else FOLLOWED if attends else {"gradient"})
    assert numbers["cost"]["parameters"] == sum(weight.numel() for weight in run.model.parameters())
    assert numbers["cost"]["flops_per_sample"] > 0


def test_the_page_says_what_was_run(trained, quick):
    _, _, text, _ = read(trained("classify"))
    for words in ("arXiv 1234.56789", "patches · encoder · classify", "a.npz", "1 to 3", EVIL, "0, 1"):
        assert words in text
    assert f"torch {torch.__version__}" in text
    assert "kind: patches" in text  # the recipe, folded
    assert "sciformer train recipe.yaml" in text
    assert re.search(r"samples 60 30 30", re.sub(r"\s+", " ", text))


def test_the_crossing_is_the_one_of_all_judged_samples(trained, quick):
    run = trained("classify")
    _, _, text, numbers = read(run)
    judged = [run.evaluate(part) for part in ("valid", "test")]
    x, group = (np.concatenate([one.samples[name] for one in judged]) for name in ("temperature", "chain"))
    p = np.concatenate([one.outputs["probabilities"][:, 1] for one in judged])
    value, error = crossing(x, p, group=group)
    along = numbers["along"]
    assert (along["column"], along["what"], along["reference"]) == ("temperature", "probability of 1", 2.0)
    assert along["crossing"] == (pytest.approx(value) if np.isfinite(value) else None)
    assert along["error"] == (pytest.approx(error) if np.isfinite(error) else None)
    assert ("crosses 0.5 at temperature" in text) is bool(np.isfinite(value))


def test_the_same_run_gives_the_same_page(trained, quick):
    run = trained("masked")
    assert write_report(run).read_bytes() == write_report(Run(run.path)).read_bytes()


def test_large_parts_are_thinned(trained, quick, monkeypatch):
    monkeypatch.setattr(report, "MAX_EVALUATED_SAMPLES", 7)
    _, _, text, numbers = read(trained("lstm"))
    assert "valid: 7 of 30 samples" in text
    assert numbers["parts"]["test"]["judged"] == 7


def test_samples_too_long_to_look_at(trained, quick, monkeypatch):
    monkeypatch.setattr(figures, "MAX_HELD_WEIGHTS", 100)
    _, _, text, numbers = read(trained("masked"))
    assert "samples of 16 tokens" in text
    assert "reach" not in numbers


def test_without_data_the_rest_is_there(fresh, tmp_path):
    (tmp_path / "a.npz").unlink()
    _, sections, text, numbers = read(Run(fresh.path))
    assert len(sections) == 8
    assert "data are missing" in text
    assert "The best model is from step" in text
    assert "parts" not in numbers
    with refuses("a.npz"):
        inspect_run(Run(fresh.path), tmp_path / "pictures")


def test_other_data_and_no_model(fresh, tmp_path):
    write_data(tmp_path, seed=1)
    assert "The data have changed since this run" in read(Run(fresh.path))[2]
    (fresh.folder.model / "weights.safetensors").unlink()
    _, sections, text, numbers = read(Run(fresh.path))
    assert len(sections) == 8
    assert "The model is missing" in text
    assert "No model was saved" in text
    assert numbers == {}


def test_a_model_that_diverged_and_steps_left_out(fresh):
    run = Run(fresh.path)
    with torch.no_grad():
        for weight in run.model.parameters():
            weight.fill_(float("nan"))
    run.folder.append({"step": 4, "left_out": True, "samples": [3]})
    _, _, text, numbers = read(run)
    assert "may have diverged" in text
    assert "non-finite gradient: 4." in text
    assert numbers["parts"]["test"]["scores"]["accuracy"] is None
    assert numbers["along"]["crossing"] is None


def test_what_cannot_be_drawn_is_told(fresh):
    recipe = fresh.folder.recipe.read_text()
    for key, value in [("plot_against", "nothing"), ("plot_against", "name"), ("curve", "7")]:
        fresh.folder.seal({"recipe.yaml": re.sub(rf"(?m)^  {key}: .*$", f"  {key}: '{value}'", recipe)})
        _, _, text, numbers = read(Run(fresh.path))
        assert re.search(rf"Not shown: .*[`']{value}[`']", text)
        assert "along" not in numbers


def test_pictures_of_a_run(trained, tmp_path):
    said = []
    written = inspect_run(trained("classify"), tmp_path, samples=2, part="valid", log=said.append)
    assert [path.stem for path in written] == [
        *("sample-1", "heads-1", "sample-2", "heads-2", "positions", "heads", "reach", "reach-along"),
        *("reasons-1", "reasons-2", "faithfulness"),
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    assert said == []
    assert [path.stem for path in inspect_run(trained("lstm"), tmp_path / "b", 1, log=said.append)] == [
        *("sample-1", "reasons-1", "faithfulness")
    ]
    assert said == ["This trunk has no attention."]
    with refuses(0, key="--samples"):
        inspect_run(trained("lstm"), tmp_path, samples=0)
    with refuses("tset", "test"):
        inspect_run(trained("lstm"), tmp_path, part="tset")


def test_a_curve_of_one_point_is_a_sentence(tmp_path):
    write_data(tmp_path)
    once = recipe(tmp_path, train={"steps": 2, "evaluate_every": 2, "log_every": 1})
    run = train(once, tmp_path / "run", show=False)
    text = run.folder.report.read_text()
    assert re.search(r"Evaluated once: .*accuracy 0?\.?\d+ \(step 2\)", text)
    assert "Scores against step" not in text
    assert "Loss against step" in text  # the training has two points
    kept = json.loads((run.path / "scores.json").read_text())["parts"]["test"]
    low, high = kept["intervals"]["accuracy"]
    assert low <= kept["scores"]["accuracy"] <= high
    assert "95 % interval" in text
    assert ".." not in re.sub(r"\.\.\.", "", " ".join(re.findall(r"<p>(.*?)</p>", text)))


def test_a_score_of_too_few_samples_is_nowhere_shown_as_a_number(tmp_path, quick):
    write_data(tmp_path)
    few = recipe(tmp_path, data={"split": {"by": "chain", "valid": 0.1, "test": 0.1}})
    run = train(few, tmp_path / "run", show=False)
    text = run.folder.report.read_text()
    parts = json.loads((run.path / "scores.json").read_text())["parts"]
    assert [one["too_few"] for one in parts.values()] == [["auc"]] * 2
    assert "ROC curve" not in text
    assert "Confusion matrix" in text
    assert not re.search(r"auc 0?\.?\d", text)
    assert '<td class="number">too few</td>' in text


def test_samples_are_named_by_their_tags():
    tags = np.empty(2, object)
    tags[:] = [np.array(["O", "B-place"]), np.array(["O"] * 200)]
    batch = SimpleNamespace(samples={"tags": tags, "x": np.array([1 / 3, 2])}, ids=np.arange(2))
    objective = SimpleNamespace(plot_against="x", label="tags")
    assert attention.sample_name(batch, 0, objective) == "x 0.3333, tags O B-place"
    assert len(attention.sample_name(batch, 1, objective)) <= 80


def test_samples_are_from_within_sorted_data():
    assert attention.sample_ids(90, 3).tolist() == [15, 45, 75]
    assert attention.sample_ids(90, 1).tolist() == [45]
    assert attention.sample_ids(2, 5).tolist() == [0, 1]
    assert attention.sample_ids(0, 3).tolist() == []
