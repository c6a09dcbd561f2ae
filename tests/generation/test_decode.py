"""Tokens step by step: with any cache and in any batch they are those of whole passes."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sciformer.data.batch import StreamView
from sciformer.generation.decode import Stepper, compiled_step, search_beams, write
from sciformer.generation.generate import _precision
from sciformer.generation.sampling import Sampling, draw_uniforms
from sciformer.nn import Decoder, Learned, RelativeBias, Rotary, Sinusoidal
from sciformer.training.config import Train
from tests.generation.whole_passes import GREEDY, WINDOW, whole_passes
from tests.nn.parity import shake

SIZE, DIM = 11, 16
ALL = torch.ones(SIZE, dtype=torch.bool)


class Model(nn.Module):
    """As the models of recipes are called."""

    def __init__(self, position=None, size=SIZE, **options):
        super().__init__()
        self.table = nn.Embedding(size, DIM)
        self.trunk = Decoder(DIM, 2, 4, position=position, **options)
        self.readout = nn.Linear(DIM, size)

    def decode(self, view, cache=None):
        return self.trunk(self.table(view.columns["ids"]), view.valid, at=view.columns.get("at"), cache=cache)


def model(position=None, **options):
    torch.manual_seed(0)
    return shake(Model(Learned(DIM, WINDOW) if position is None else position, **options)).double().eval()


def written(model, ids, length, sampling=GREEDY, uniform=None, forbidden=(), **more):
    allowed = ALL.clone()
    allowed[list(forbidden)] = False
    uniform = torch.zeros(length, len(ids)) if uniform is None else uniform
    blocks = list(write(model, torch.tensor(ids), length, sampling, uniform, allowed=allowed, window=WINDOW, **more))
    return torch.cat(blocks, 1).tolist()


@torch.no_grad()
def stepped(stepper, ids, uniform, pads=None, step=None):
    """The tokens after ids, one step after the other."""
    ids = torch.tensor(ids)
    stepper.remember(ids, pads)
    stepper.open(uniform)
    stepper.begin(ids, pads)
    for _ in range(len(uniform) - 1):
        (step or stepper.step)()
    return stepper.written[:, : len(uniform)].tolist()


POSITIONS = [Learned(DIM, WINDOW), Sinusoidal(DIM), Rotary(4), RelativeBias(4, 5)]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("position", POSITIONS, ids=lambda position: type(position).__name__)
def test_every_position_and_group_writes_what_whole_passes_write(position, kv_heads):
    made, prompt, length = model(position, kv_heads=kv_heads), [1, 5, 2], WINDOW - 3
    expected = whole_passes(made, prompt, length)
    assert len(set(expected)) > 1
    assert written(made, [prompt], length) == [expected]
    fixed = Stepper(made, 1, GREEDY, ALL, WINDOW)
    places = set()
    for _ in range(2):  # a fixed cache serves one text after the other
        assert stepped(fixed, [prompt], torch.zeros(length, 1)) == [expected]
        places.add(fixed.cache.blocks[0].keys.data_ptr())
    assert len(places) == 1


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(0.7, 4), Sampling(1.3, None, 0.8), Sampling(1.0, 5, 0.9, 1.5), Sampling(0, repetition=2.0)],
    ids=str,
)
def test_drawn_tokens_too_and_never_a_forbidden_one(sampling):
    made, uniform = model(), draw_uniforms(3, 2, 20)
    found = written(made, [[1, 2], [7, 4]], 20, sampling, uniform, forbidden=[6, 0])
    for row, prompt in enumerate([[1, 2], [7, 4]]):
        assert found[row] == whole_passes(made, prompt, 20, sampling, uniform[:, row : row + 1], [6, 0])
        assert not {0, 6} & set(found[row])


@pytest.mark.parametrize("position", POSITIONS, ids=lambda position: type(position).__name__)
def test_prompts_of_different_length_together(position):
    made, prompts, length = model(position), [[4], [1, 2, 3, 9], [5, 6]], 10
    pads = torch.tensor([4 - len(prompt) for prompt in prompts])
    ids = [[0] * (4 - len(prompt)) + prompt for prompt in prompts]
    sampling, uniform = Sampling(1.0, repetition=1.4), draw_uniforms(0, 3, length)
    expected = [whole_passes(made, one, length, sampling, uniform[:, [row]]) for row, one in enumerate(prompts)]
    assert written(made, ids, length, sampling, uniform, pads=pads) == expected
    fixed = Stepper(made, 3, sampling, ALL, 32)
    assert stepped(fixed, ids, uniform, pads) == expected


@pytest.mark.parametrize("position", [Learned(DIM, WINDOW), Rotary(4)], ids=lambda position: type(position).__name__)
def test_a_step_can_be_compiled_as_a_whole_and_once(position, monkeypatch):
    torch._dynamo.reset()
    made, length, sampling = model(position), 12, Sampling(0.9, 5, 0.9, 1.3)
    uniform = draw_uniforms(0, 1, length)
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call, options, **more: real(call, backend="eager", **more))
    stepper = Stepper(made, 1, sampling, ALL, WINDOW)
    step = compiled_step(stepper)
    stepped(stepper, [[1, 2]], uniform[:2], step=step)
    with torch._dynamo.config.patch(error_on_recompile=True):
        found = stepped(stepper, [[1, 2]], uniform, step=step)
    assert found == [whole_passes(made, [1, 2], length, sampling, uniform)]


def test_other_weights_are_cast_and_the_model_is_left_alone():
    made = model().float()
    found = written(made, [[1, 2]], 5, precision=torch.float64)
    assert found == [whole_passes(model().float().double(), [1, 2], 5)]
    assert made.readout.weight.dtype == torch.float32


# Beams


def likelihood(made, prompt, ids):
    with torch.no_grad():
        logits = made.readout(made.decode(StreamView({"ids": torch.tensor([[*prompt, *ids]])}, None)))
    return float(logits[0, len(prompt) - 1 : -1].log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).sum())


def test_a_wide_beam_finds_the_likeliest_text_of_a_length():
    made, prompt, length = model(size=4), [1, 3], 4
    allowed = torch.tensor([True, True, True, False])
    best = max(itertools.product(range(3), repeat=length), key=lambda ids: likelihood(made, prompt, list(ids)))
    with torch.no_grad():
        found = search_beams(made, torch.tensor([prompt]), None, length, allowed, 3**length)
        narrow = search_beams(made, torch.tensor([prompt, [2, 0]]), None, length, allowed, 1)
    assert found == [list(best)]
    assert all(len(ids) == length for ids in narrow)
    assert math.isfinite(likelihood(made, prompt, narrow[0]))


@pytest.mark.parametrize(
    ("trained", "asked", "device", "expected"),
    [
        ("float32", "auto", "cuda", None),
        ("auto", "auto", "cuda", torch.bfloat16),
        ("bfloat16", "auto", "cuda", torch.bfloat16),
        ("bfloat16", "auto", "cpu", None),  # trained elsewhere
        ("tensorfloat32", "auto", "cuda", None),
        ("float32", "bfloat16", "cuda", torch.bfloat16),
        ("bfloat16", "float32", "cuda", None),
    ],
)
def test_writing_is_as_precise_as_training_was_unless_asked_for(trained, asked, device, expected):
    settings = Train(precision=trained)
    run = SimpleNamespace(recipe=SimpleNamespace(train=settings), device=torch.device(device))
    assert _precision(run, asked) is expected
