"""Every shipped recipe: it loads, says what it is, its command parses, it trains, is judged and reported."""

import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.cli.main import app
from sciformer.domains.text.tokens import Text
from sciformer.models.base import parameters
from sciformer.recipe import Recipe, describe, recipes
from sciformer.recipe.options import parse_arguments
from sciformer.run import Run, train
from tests.golden import NAMES as GOLDEN
from tests.golden import REWRITE, batch_ids, compare, facts, write
from tests.shipped import small, tiny

ROOT = Path(__file__).parents[1]
NAMES = recipes()
COUNT = 100
WORDS = 33_278  # of WikiText-2
# Parameters of the presets at full size, in millions.
MILLIONS = {
    "atmosphere/cubes": 1.036,
    "atmosphere/cubes-coupled": 1.918,
    "images/caption-transformer": 2.197,
    "images/coca": 2.235,
    "images/cues-cnn": 2.798,
    "images/cues-vit": 1.208,
    "images/digits-cnn": 0.3081,
    "images/digits-vit": 0.2021,
    "images/from-text": 4.711,
    "images/from-text-diffusion": 15.02,
    "images/galaxies": 2.42,
    "images/galaxies-linformer": 2.814,
    "images/galaxies-resnet": 11.181,
    "images/lenses": 1.623,
    "images/lenses-resnet": 11.176,
    "images/mae": 111.7,
    "images/mae-classify": 1.967,
    "images/mnist-cnn": 2.777,
    "images/mnist-mae": 2.931,
    "images/mnist-vit": 2.684,
    "images/resnet-18": 11.18,
    "images/resnet-50": 23.53,
    "images/scenes-question": 0.3321,
    "images/show-attend-tell": 0.6178,
    "images/simclr": 2.452,
    "images/vit-base": 85.81,
    "images/vit-huge": 630.8,
    "images/vit-large": 303.3,
    "images/vit-linformer": 6.734,
    "images/vit-small": 21.67,
    "images/vit-tiny": 5.526,
    "images/vq": 0.4220,
    "jets/lorentznet": 0.229,
    "jets/part": 2.143,
    "jets/part-kin": 2.142,
    "jets/part-masked": 1.760,
    "jets/part-plain": 2.134,
    "jets/part-v2": 2.790,
    "jets/part-v3": 2.770,
    "jets/particlenet": 0.370,
    "jets/pcnn": 0.3545,
    "jets/pct": 0.1745,
    "jets/pfn": 0.0862,
    "lightcurves/astroconformer": 0.8502,
    "lightcurves/astromer": 1.982,
    "lightcurves/astromer-classify": 1.585,
    "lightcurves/astromer1": 0.6618,
    "lightcurves/cnn": 0.5583,
    "lightcurves/denoiser": 0.5318,
    "lightcurves/folded": 0.5345,
    "lightcurves/gru": 0.5975,
    "lightcurves/lstm": 0.5263,
    "lightcurves/timemodattn": 0.2072,
    "lightcurves/transformer": 0.5325,
    "lightcurves/transient-multistream": 0.3213,
    "signals/gravitational-wave": 1.263,
    "spins/ising-cnn": 0.150,
    "spins/ising-lstm": 0.0514,
    "spins/ising-masked": 0.818,
    "spins/ising-masked-resnet18": 11.3,
    "spins/ising-masked-resnet50": 24.03,
    "spins/ising-temperature": 0.81,
    "spins/ising-temperature-resnet18": 11.17,
    "spins/ising-temperature-resnet50": 23.51,
    "spins/ising-vit": 0.105,
    "spins/wavefunction": 0.00459,
    "spins/wavefunction-factored": 0.00349,
    "spins/wavefunction-square": 0.00459,
    "text/bert": 21.1,
    "text/gpt-bpe": 13.9,
    "text/gpt-bpe-124m": 124.4,
    "text/gpt-bpe-gqa": 12.6,
    "text/gpt-bpe-mqa": 12.3,
    "text/gpt-char": 0.80,
    "text/gpt-char-large": 10.7,
    "text/gpt-translate": 5.77,
    "text/pronouns-attention": 0.455,
    "text/pronouns-lstm": 0.340,
    "text/pronouns-transformer": 1.00,
    "text/recall-attention": 0.0269,
    "text/recall-gru": 0.0267,
    "text/recall-lstm": 0.0350,
    "text/recall-rnn": 0.0101,
    "text/recall-transformer": 0.0847,
    "text/sentiment": 2.35,
    "text/sentiment-bilstm": 9.31,
    "text/sentiment-bow": 8.52,
    "text/sentiment-cnn": 9.18,
    "text/sentiment-scratch": 20.9,
    "text/seq2seq-gru": 3.78,
    "text/seq2seq-lstm": 3.68,
    "text/seq2seq-rnn": 3.18,
    "text/tagging": 2.35,
    "text/tagging-bilstm": 9.31,
    "text/transformer-base": 63.1,
    "text/transformer-big": 214.2,
    "text/transformer-multi30k": 7.83,
    "text/transformer-tiny": 2.61,
    "text/wikitext-gpt": 23.4,
    "text/wikitext-lstm": 27.9,
}


def kind(name):
    recipe = Recipe.load(name)
    tokens = recipe.streams.values()
    data = "" if "patches" in {one.kind for one in tokens} else recipe.data.kind  # images are drawn alike
    return *(one.kind for one in tokens), data, recipe.model.kind, recipe.model.trunk, recipe.objective.kind


DRAWN = {kind(name): name for name in NAMES}  # reports take time: one of each kind


@cache
def measured() -> set[str]:
    files = [ROOT / "src/sciformer/recipe/measured.json", *sorted((ROOT / "benchmarks/results").glob("*.json"))]
    assert len(files) >= 2
    ids: set[str] = set()
    for file in files:
        found = json.loads(file.read_text("utf-8"))
        ids |= set(found) if isinstance(found, dict) else {row["id"] for row in found}
    return ids


def test_the_sweep_sees_all_of_them():
    files = sorted((ROOT / "src/sciformer/domains").glob("*/recipes/**/*.yaml"))
    assert len(files) == len(NAMES)
    assert {file.stem for file in files} == {name.partition("/")[2] for name in NAMES}
    assert len(NAMES) == COUNT
    assert sorted(MILLIONS) == NAMES
    assert REWRITE or sorted(GOLDEN) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is(name):
    about = describe(name)
    for key in ("title", "paper", "data", "command", "score"):
        assert getattr(about, key), f"{name}: about.{key} is missing"
    assert len(about.title) <= 80 - len(name) - 2
    assert about.score in measured() | {"unmeasured"}
    (file,) = (ROOT / "src/sciformer/domains").glob(f"*/recipes/**/{name.partition('/')[2]}.yaml")
    text = file.read_text()
    assert text.startswith("# "), "a recipe opens with what it is, in a sentence"
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", NAMES)
def test_its_command_parses_and_runs_this_recipe(name):
    program, *line = shlex.split(describe(name).command)
    words, changes = parse_arguments(line)
    verb = words[0]
    assert (program, words[1]) == ("sciformer", name)
    assert verb in ("train", "pretrain", "finetune")
    command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert (command.__name__, bound.arguments["recipe"]) == ("train" if verb == "pretrain" else verb, name)
    assert Recipe.load(name, changes).name == name


@pytest.mark.parametrize("name", NAMES)
def test_what_it_prints_loads_to_the_same(name, tmp_path):
    recipe = Recipe.load(name)
    (tmp_path / "mine.yaml").write_text(recipe.to_yaml())
    assert Recipe.load(tmp_path / "mine.yaml") == recipe


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_as_recorded_is_judged_and_reported(name, tmp_path, monkeypatch, request):
    recipe = tiny(name, tmp_path)
    if re.search("trunk: resnet2d|embed: residual", recipe.to_yaml()):  # batch norms of four images amplify rounding
        request.getfixturevalue("double")
    drawn = name in DRAWN.values()
    ids = batch_ids(monkeypatch)
    run = train(recipe, tmp_path / "run", show=False, report=drawn)
    records = [record for record in run.records if "loss" in record]
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5]
    assert all(torch.isfinite(torch.tensor(record["loss"])) for record in records)
    if drawn:
        kept = json.loads((run.path / "scores.json").read_text())
        assert kept["parts"]
        for part in kept["parts"].values():
            assert part["scores"]["loss"] > 0 or recipe.objective.kind == "energy"
        assert (run.path / "report.html").stat().st_size > 10_000
    again = Run(run.path)
    assert again.recipe == run.recipe
    assert again.evaluate("valid").scores["loss"] == pytest.approx(run.scores["loss"], rel=1e-4)
    found = facts(again, ids)
    if REWRITE:
        write(name, found)
    compare(found, name)


@pytest.mark.parametrize("name", NAMES)
def test_its_size_is_what_it_should_be(name, tmp_path, monkeypatch):
    recipe = small(name, tmp_path)
    known = {"words": WORDS, "characters": 67}  # what the texts of the measurements have
    if recipe.data.kind not in ("pronouns", "copying_memory", "scenes"):  # these make their own text
        monkeypatch.setattr(Text, "size", property(lambda text: text.vocabulary or known.get(text.unit)))
    size = {"data.size": Recipe.load(name).data.size} if recipe.data.kind == "lattices" else {}
    data = Assembly.open(recipe.change(size))
    with torch.device("meta"):
        model = recipe.model.build(data.tokens, data.objective)
    assert all(weight.is_meta for weight in model.parameters())
    assert parameters(model) / 1e6 == pytest.approx(MILLIONS[name], rel=0.02)
