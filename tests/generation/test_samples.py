"""Generated samples: the same whatever the batch, refusals, and conditions of every kind."""

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from sciformer.cli.show import show_run
from sciformer.generation import samples
from sciformer.generation.samples import generate_samples, parse_numbers
from sciformer.generation.sampling import Sampling
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.errors import refuses

SMALL = {"data.number": 150, "data.valid": 8, "data.test": 8, "data.chunk_size": 150, "data.things": [1, 2]}
SMALL |= {"model.dim": 16, "model.depth": 1, "model.heads": 2, "model.source.depth": 1, "tokens.target.patch": 16}
SMALL |= {"train.steps": 3, "train.warmup": 1, "train.batch": 4, "train.evaluate_every": 3, "train.device": "cpu"}
WAYS = {
    "codes": ("images/from-text", {"tokens.target.codes": 12}, {}),
    "diffusion": ("images/from-text-diffusion", {}, {"steps": 3}),
}


def make(way, folder, **changes):
    name, more, _ = WAYS[way]
    run = train(Recipe.load(name, SMALL | more | changes), folder, show=False, report=False)
    with torch.no_grad():  # far from the zeros of a new model
        for weight in run.model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    return run


@pytest.fixture(scope="module", params=WAYS)
def trained(request, tmp_path_factory):
    way = request.param
    return make(way, tmp_path_factory.mktemp(way) / "run"), WAYS[way][2]


def test_a_finished_training_names_the_command_that_draws(trained):
    run, _ = trained
    console = Console(file=io.StringIO(), width=200)
    show_run(run, console)
    assert f'next: sciformer generate {run.path} --prompt "..." --out FOLDER\n' in console.file.getvalue()


PROMPTS = ["a red disc", "a large blue star", "", "a small green bar left of a white ring"]


def test_a_picture_is_the_same_whatever_the_batch(trained, monkeypatch):
    run, options = trained
    whole = run.generate(PROMPTS, 3, seed=5, **options)
    assert whole.shape == (4, 3, 64, 64, 3)
    assert whole.dtype == np.uint8
    for row, prompt in enumerate(PROMPTS):
        assert np.array_equal(run.generate([prompt], 2, seed=5, **options)[0], whole[row, :2])
    assert np.array_equal(run.generate(PROMPTS[::-1], 1, seed=5, **options)[::-1, 0], whole[:, 0])
    twice = run.generate([PROMPTS[1]] * 2, 1, seed=5, **options)
    assert np.array_equal(twice[:, 0], whole[1, :2])  # the second of a prompt, not the first again
    assert (whole[1, 0] != whole[1, 1]).any()
    assert (run.generate(PROMPTS[:1], 1, seed=6, **options)[0, 0] != whole[0, 0]).any()


def test_guided_pictures_do_not_depend_on_the_batch_either(trained):
    run, options = trained
    whole = run.generate(PROMPTS, 1, seed=5, guidance=3.0, **options)
    assert np.array_equal(run.generate(PROMPTS[3:], 1, seed=5, guidance=3.0, **options)[0], whole[3])
    assert (whole[0] != run.generate(PROMPTS[:1], 1, seed=5, **options)[0]).any()


def test_guidance_zero_ignores_the_prompt(trained, monkeypatch):
    run, options = trained
    monkeypatch.setattr(samples, "prompt_code", lambda prompt: 0)  # the same random numbers for all prompts
    one, two, empty = (run.generate([text], 1, seed=5, guidance=0.0, **options) for text in ("a red disc", "a bar", ""))
    assert np.array_equal(one, two)
    assert np.array_equal(one, empty)


def test_without_a_seed_each_call_differs(trained):
    run, options = trained
    assert (run.generate(["a red disc"], **options) != run.generate(["a red disc"], **options)).any()


def test_a_loaded_run_makes_the_same(trained, tmp_path):
    run, options = trained
    again = Run(run.path)
    again.model.load_state_dict(run.model.state_dict())
    assert np.array_equal(again.generate(["a bar"], seed=1, **options), run.generate(["a bar"], seed=1, **options))


@pytest.mark.parametrize(
    ("prompts", "options", "key", "mentions"),
    [
        (["a red dsc"], {}, "--prompt", ["dsc", "disc"]),
        (["a red disc" + " left of a red disc" * 3], {}, "--prompt", [18]),
        ("a red disc", {}, None, ["list"]),
        ([], {}, None, ["prompt"]),
        (["a red disc"], {"number": 0}, "--number", [0]),
        (["a red disc"], {"guidance": -1.0}, "--guidance", [-1]),
        (["a red disc"], {"steps": 5000}, "--steps", []),
    ],
)
def test_bad_input(trained, prompts, options, key, mentions):
    with refuses(*mentions, key=key):
        generate_samples(trained[0], prompts, **options)


def test_a_model_that_knows_no_missing_condition(tmp_path):
    run = make("codes", tmp_path / "run", **{"objective.condition_dropout": 0.0})
    with refuses("empty", key="--prompt"):
        run.generate([""])
    with refuses("condition_dropout", key="objective.condition_dropout"):
        run.generate(["a red disc"], guidance=2.0)
    greedy = run.generate(["a red disc"], 2, seed=0, sampling=Sampling(temperature=0))
    assert np.array_equal(greedy[0, 0], greedy[0, 1])


LATTICES = {
    "data.size": 4,
    "data.number": 3,
    "data.chains": 4,
    "data.samples": 1,
    "data.cache": "",
    "data.gap": [9, 10],
}


@pytest.fixture(scope="module", params=WAYS)
def spins(request, tmp_path_factory):
    """Lattices at a temperature."""
    name, _, options = WAYS[request.param]
    scalars = {"kind": "scalars", "columns": ["temperature"]}
    base = {"base": name, "data": {"kind": "lattices"}, "tokens": {"source": scalars, "target": {"patch": 2}}}
    base["model"] = {"source": {"position": "none", "depth": 1}, "dim": 16, "depth": 1, "heads": 2}
    changes = LATTICES | {key: value for key, value in SMALL.items() if key.startswith("train")}
    folder = tmp_path_factory.mktemp(request.param) / "run"
    return train(Recipe.from_dict(base).change(changes), folder, show=False, report=False), options


def test_a_condition_may_be_a_number(spins):
    run, options = spins
    found = run.generate({"temperature": np.array([1.0, 3.6])}, 2, seed=0, **options)
    assert found.shape == (2, 2, 4, 4, 1)
    assert set(np.unique(found)) <= {-1, 1}
    for words in ("1", "1.0", "temperature=1"):
        assert np.array_equal(run.generate([words], 2, seed=0, **options)[0], found[0])
    for wrong in ("cold", "heat=1", "temperature=1,field=2"):
        with refuses(wrong, "temperature", key="--prompt"):
            run.generate([wrong], **options)


def test_numbers_of_a_prompt():
    assert parse_numbers("b=2, a=-1e3", ["a", "b"]) == {"a": -1000, "b": 2}
    with refuses("a=NUMBER,b=NUMBER"):
        parse_numbers("2", ["a", "b"])


@pytest.mark.parametrize("way", WAYS)
def test_a_model_without_a_condition(way, tmp_path):
    """Codes by a decoder, patches by diffusion."""
    tokens = {"codes": {"kind": "picture_codes", "patch": 2}, "diffusion": {"kind": "patches", "patch": 2}}[way]
    model, objective = {"codes": ("decoder", "next_token"), "diffusion": ("diffusion_transformer", "diffusion")}[way]
    plain = {"data": {"kind": "lattices"}, "tokens": tokens, "objective": {"kind": objective}}
    plain["model"] = {"kind": model, "dim": 16, "depth": 1, "heads": 2}
    changes = LATTICES | {key: value for key, value in SMALL.items() if key.startswith("train")}
    run = train(Recipe.from_dict(plain).change(changes), tmp_path / "run", show=False, report=True)
    found = run.generate(number=5, seed=0, **WAYS[way][2])
    assert found.shape == (1, 5, 4, 4, 1)
    assert np.array_equal(run.generate(number=2, seed=0, **WAYS[way][2])[0], found[0, :2])
    with refuses(key="--prompt"):
        run.generate(["1.0"])
    with refuses(key="objective.condition_dropout" if way == "diffusion" else None):
        run.generate(guidance=2.0)


@pytest.mark.parametrize("way", WAYS)
def test_a_training_that_stops_goes_on_bit_for_bit(way, tmp_path):
    name, more, _ = WAYS[way]
    recipe = Recipe.load(name, SMALL | more | {"train.steps": 6, "train.save_every": 2})
    whole = train(recipe, tmp_path / "whole", show=False, report=False)
    train(recipe, tmp_path / "parts", show=False, report=False, stop_after=3)
    parts = train(recipe, tmp_path / "parts", show=False, report=False)
    for one, two in zip(whole.model.state_dict().values(), parts.model.state_dict().values(), strict=True):
        assert torch.equal(one, two)
