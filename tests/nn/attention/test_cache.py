"""Decoding step by step, where it is easy to go wrong."""

import pytest
import torch

from sciformer.nn import Decoder, Learned, RelativeBias, Rotary, Sinusoidal, Window, grid
from tests.errors import refuses
from tests.nn.parity import shake

CAPACITIES = [None, 12]


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize(
    "position", [Rotary(4), RelativeBias(4, 3), Sinusoidal(16), Learned(16, 9)], ids=lambda p: type(p).__name__
)
@torch.no_grad()
def test_every_position_decodes_prompts_of_different_length_together(position, capacity):
    """Padding to the left, coordinates from the first real token: as if each were alone."""
    decoder = shake(Decoder(16, 2, 4, position=position)).double().eval()
    x, valid = torch.randn(2, 9, 16).double(), torch.ones(2, 9, dtype=torch.bool)
    valid[1, :3] = False
    at = torch.stack([torch.arange(9), (torch.arange(9) - 3).clamp(min=0)])
    cache, parts = decoder.cache(capacity), []
    for piece in (slice(0, 5), slice(5, 6), slice(6, 9)):
        parts.append(decoder(x[:, piece], valid[:, piece], at=at[:, piece], cache=cache))
    found = torch.cat(parts, 1)
    torch.testing.assert_close(found[0], decoder(x[:1])[0])
    torch.testing.assert_close(found[1, 3:], decoder(x[1:, 3:])[0])


@pytest.mark.parametrize("capacity", CAPACITIES)
@torch.no_grad()
def test_a_bias_over_a_grid_decodes_too(capacity):
    decoder = shake(Decoder(16, 1, 4, position=RelativeBias(4, 2, axes=2))).double().eval()
    x, at = torch.randn(2, 6, 16).double(), grid((2, 3))
    cache = decoder.cache(capacity)
    parts = [decoder(x[:, :4], at=at[:4], cache=cache), decoder(x[:, 4:], at=at[4:], cache=cache)]
    torch.testing.assert_close(torch.cat(parts, 1), decoder(x, at=at))
    cache.reorder(torch.tensor([1, 0]))
    assert cache.at.shape[0] == 2


@torch.no_grad()
def test_validity_may_begin_late():
    decoder = shake(Decoder(16, 2, 4)).double().eval()
    x, valid = torch.randn(2, 8, 16).double(), torch.ones(2, 8, dtype=torch.bool)
    valid[0, 6] = False
    cache = decoder.cache()
    parts = [decoder(x[:, :4], cache=cache), decoder(x[:, 4:], valid[:, 4:], cache=cache)]
    torch.testing.assert_close(torch.cat(parts, 1), decoder(x, valid))


@pytest.mark.parametrize("capacity", CAPACITIES)
@torch.no_grad()
def test_a_refused_call_leaves_the_cache_as_it_was(capacity):
    decoder = shake(Decoder(16, 2, 4, position=RelativeBias(4, 3))).double().eval()
    x, cache = torch.randn(2, 6, 16).double(), decoder.cache(capacity)
    parts = [decoder(x[:, :4], cache=cache)]
    for _ in range(2):
        with refuses("bias", "(1, 1, 1, 3)"):
            decoder(x[:, 4:5], bias=torch.zeros(1, 1, 1, 3).double(), cache=cache)
    parts += [decoder(x[:, 4:5], cache=cache), decoder(x[:, 5:], cache=cache)]
    torch.testing.assert_close(torch.cat(parts, 1), decoder(x))


@pytest.mark.parametrize("capacity", CAPACITIES)
@torch.no_grad()
def test_a_reordered_cache_goes_on_with_a_memory_that_was_given_once(capacity):
    decoder = shake(Decoder(16, 2, 4, position=Rotary(4), cross=True, memory_dim=6)).double().eval()
    x, memory = torch.randn(3, 5, 16).double(), torch.randn(3, 4, 6).double()
    real, valid, index = torch.rand(3, 5) > 0.2, torch.rand(3, 4) > 0.4, torch.tensor([2, 0, 2])
    given, cache = {"memory": memory, "memory_valid": valid}, decoder.cache(capacity)
    unchanged, expected = real.clone(), decoder(x, real, **given)
    parts = [decoder(x[:, :2], real[:, :2], **given, cache=cache), decoder(x[:, 2:4], real[:, 2:4], cache=cache)]
    torch.testing.assert_close(torch.cat(parts, 1), expected[:, :4])
    cache.reorder(index)
    torch.testing.assert_close(decoder(x[index, 4:], real[index, 4:], cache=cache), expected[index, 4:])
    assert torch.equal(real, unchanged)  # what the caller passed is the caller's


def test_inference_and_no_grad_may_follow_each_other():
    decoder = shake(Decoder(16, 1, 4, position=RelativeBias(4, 3))).eval()
    x, cache = torch.randn(2, 4, 16), decoder.cache(4)
    with torch.inference_mode():
        first = decoder(x[:, :3], cache=cache)
    with torch.no_grad():
        last = decoder(x[:, 3:], cache=cache)
        torch.testing.assert_close(torch.cat([first, last], 1), decoder(x))


@torch.no_grad()
def test_another_batch_is_refused():
    decoder = Decoder(16, 1, 4).eval()
    cache = decoder.cache()
    decoder(torch.randn(2, 3, 16), cache=cache)
    with refuses("2 samples", 3, hint="cache.reorder"):
        decoder(torch.randn(3, 1, 16), cache=cache)


@pytest.mark.parametrize("capacity", CAPACITIES)
@torch.no_grad()
def test_compiled_steps_equal_eager_ones(capacity):
    torch._dynamo.reset()
    decoder = shake(Decoder(16, 2, 4, position=Rotary(4), pattern=Window(5))).double().eval()
    x, cache = torch.randn(2, 9, 16).double(), decoder.cache(capacity)
    step = torch.compile(decoder, backend="eager")
    parts = [decoder(x[:, :4], cache=cache)] + [step(x[:, i : i + 1], cache=cache) for i in range(4, 9)]
    torch.testing.assert_close(torch.cat(parts, 1), decoder(x))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_growing_cache_has_room_to_spare_and_forgets_what_a_refused_call_left(mode):
    decoder = shake(Decoder(16, 2, 4, kv_heads=2, position=Rotary(4))).double().eval()
    x, cache = torch.randn(2, 200, 16).double(), decoder.cache()
    with mode():
        parts = [decoder(x[:, :3], cache=cache)]
        places = set()
        for i in range(3, 200):
            if i == 70:
                cache.blocks[0].extend(*torch.randn(2, 2, 2, 5, 4).double(), 70)  # as a pass that failed later on
            parts.append(decoder(x[:, i : i + 1], cache=cache))
            places.add(cache.blocks[0].keys.data_ptr())
        assert len(places) < 6
        torch.testing.assert_close(torch.cat(parts, 1), decoder(x))


def test_a_growing_cache_may_be_reordered_in_inference_and_go_on_without():
    decoder = shake(Decoder(16, 1, 4)).double().eval()
    x, cache, index = torch.randn(3, 5, 16).double(), decoder.cache(), torch.tensor([2, 0, 0])
    with torch.inference_mode():
        for i in range(3):
            decoder(x[:, i : i + 1], cache=cache)
        cache.reorder(index)
    with torch.no_grad():
        parts = [decoder(x[index, i : i + 1], cache=cache) for i in (3, 4)]
        torch.testing.assert_close(torch.cat(parts, 1), decoder(x[index])[:, 3:])


def test_gradients_flow_through_a_growing_cache():
    decoder = shake(Decoder(16, 2, 4)).double()
    x = torch.randn(2, 6, 16).double().requires_grad_()
    cache = decoder.cache()
    parts = torch.cat([decoder(x[:, i : i + 2], cache=cache) for i in (0, 2, 4)], 1)
    weight = torch.randn_like(parts)
    found = torch.autograd.grad((parts * weight).sum(), x)[0]
    torch.testing.assert_close(found, torch.autograd.grad((decoder(x) * weight).sum(), x)[0])
