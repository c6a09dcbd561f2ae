"""Decoding on a GPU: a step that is recorded, compiled or not, writes what the CPU writes."""

import numpy as np
import pytest
import torch

from sciformer.generation.generate import RECORDED_STEPS, generate, generate_many
from sciformer.nn import Causal, Rotary, Sight, Window, attend, rotate
from sciformer.nn.attention.kernels import decode_step
from sciformer.recipe import Recipe
from sciformer.run import Run, train

pytestmark = pytest.mark.gpu
CONTEXT = 96
STEPS = {"steps": 60, "batch": 8, "warmup": 5, "learning_rate": 3e-3}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("width", [16, 24, 64, 128])
@pytest.mark.parametrize(("back", "pairs"), [(-1, None), (0, None), (7, "neighbours"), (200, "halves"), (-1, "halves")])
def test_one_query_against_a_fixed_cache(dtype, kv_heads, width, back, pairs):
    heads, capacity = 4, 512
    rng = torch.Generator("cuda").manual_seed(0)
    pattern = Causal() if back < 0 else Causal() & Window(back)
    assert decode_step.reach(pattern) == back
    for batch, place in ((1, 0), (3, 1), (2, 130), (1, 511)):
        made = torch.randn(batch, 1, (heads + 2 * kv_heads) * width, device="cuda", generator=rng).to(dtype)
        cut = made.split([heads * width, kv_heads * width, kv_heads * width], -1)
        q, k, v = (part.unflatten(-1, (-1, width)).transpose(1, 2) for part in cut)
        keys, values = torch.randn(2, batch, kv_heads, capacity, width, device="cuda", generator=rng).to(dtype)
        valid = torch.rand(batch, capacity, device="cuda", generator=rng) > 0.3
        valid[:, place] = True
        start = torch.tensor(place, device="cuda")
        rotation = None
        if pairs is not None:
            at = torch.randint(0, 50, (batch, 1, 1), device="cuda", generator=rng)
            rotation = Rotary(width, pairs=pairs).rotation(at, dtype)
            q, k = rotate(q, rotation), rotate(k, rotation)
        expected_keys, expected_values = keys.clone(), values.clone()
        expected_keys[:, :, place], expected_values[:, :, place] = k[:, :, 0], v[:, :, 0]
        found = decode_step.attend_one(
            made, *(rotation or (None, None, False)), keys, values, valid, start, width**-0.5, back
        )
        torch.testing.assert_close(keys, expected_keys)
        assert torch.equal(values, expected_values)
        sight = Sight(pattern, valid, None, start)
        expected = attend(q.double(), keys.double(), values.double(), sight, kernel="reference")
        apart = (found.double() - expected).abs().max()
        assert apart < (1e-5 if dtype == torch.float32 else 2e-2)


def recipe(folder, **changes):
    (folder / "text.txt").write_text(
        "the cat sat on the mat and the dog sat on the log by the river; a bird sang.\n" * 40
    )
    tree = {
        "data": {"kind": "text", "files": [str(folder / "text.txt")]},
        "tokens": {"kind": "text", "context": CONTEXT},
        "model": {"kind": "decoder", "dim": 64, "depth": 2, "heads": 4},
        "objective": {"kind": "next_token"},
        "train": {**STEPS, "precision": "float32", "compile": False},
    }
    return Recipe.from_dict(tree, {key.replace("__", "."): value for key, value in changes.items()})


CHANGES = {
    "learned": {},
    "rotary-grouped": {"model__position": "rotary", "model__kv_heads": 2},
    "relative": {"model__position": "relative"},
    "near": {"model__window": 9, "model__position": "sinusoidal", "model__kv_heads": 1},
}


@pytest.fixture(scope="module", params=CHANGES)
def both(request, tmp_path_factory):
    """The same run on a GPU and on the CPU."""
    folder = tmp_path_factory.mktemp(request.param)
    made = train(
        recipe(folder, **CHANGES[request.param], train__device="cuda"), folder / "run", show=False, report=False
    )
    other = Run(made.path)
    other.__dict__["device"] = torch.device("cpu")
    assert next(made.model.parameters()).is_cuda
    assert not next(other.model.parameters()).is_cuda
    return made, other


PROMPTS = ["the", "a bird sang.\nthe cat sat", "on", "the dog sat on the log by"]


def test_a_recorded_step_writes_what_the_cpu_writes_within_and_beyond_the_context(both):
    on_gpu, on_cpu = both
    for prompt in PROMPTS[:2]:
        expected = "".join(generate(on_cpu, prompt, 3 * CONTEXT, temperature=0))
        assert "".join(generate(on_gpu, prompt, 3 * CONTEXT, temperature=0)) == expected
    wishes = {"temperature": 0.9, "top_k": 8, "top_p": 0.95, "repetition": 1.1, "seed": 3}
    found = ["".join(generate(on_gpu, "the", 60, **wishes)) for _ in range(2)]
    assert found[0] == found[1]
    same = "".join(generate(on_cpu, "the", 60, **wishes))
    assert np.mean([a == b for a, b in zip(found[0], same)]) > 0.5  # a number at the edge may tip a token


def test_many_prompts_at_once_and_stops(both):
    on_gpu, on_cpu = both
    for more in ({}, {"stop": ["sat", "river"]}, {"repetition": 1.3}):
        expected = generate_many(on_cpu, PROMPTS, 40, temperature=0, **more)
        assert generate_many(on_gpu, PROMPTS, 40, temperature=0, **more) == expected


def test_a_step_is_recorded_once_and_few_are_kept(both):
    on_gpu, _ = both
    list(generate(on_gpu, "the", 20, temperature=0))
    kept = list(RECORDED_STEPS[on_gpu].values())
    list(generate(on_gpu, "a bird", 18, temperature=0))
    assert list(RECORDED_STEPS[on_gpu].values()) == kept
    for top_k in range(2, 9):
        list(generate(on_gpu, "the", 5, top_k=top_k))
    assert len(RECORDED_STEPS[on_gpu]) <= 4


@pytest.mark.parametrize("both", ["rotary-grouped"], indirect=True)
def test_a_compiled_step_writes_the_same(both):
    on_gpu, on_cpu = both
    for prompts, more in ((["the"], {"temperature": 0}), (PROMPTS, {"temperature": 0, "repetition": 1.2})):
        found = generate_many(on_gpu, prompts, 50, compiled=True, **more)
        assert found == generate_many(on_cpu, prompts, 50, **more)


def test_half_precision_is_close(both):
    on_gpu, _ = both
    whole, half = (
        "".join(generate(on_gpu, "the", 60, temperature=0, precision=name)) for name in ("float32", "bfloat16")
    )
    assert whole[:5] == half[:5]
    assert next(on_gpu.model.parameters()).dtype == torch.float32
