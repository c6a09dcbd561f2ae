"""What every trunk promises: padding, packing and company change nothing, nothing is NaN, everything learns."""

import copy

import pytest
import torch

from sciformer import nn
from tests.errors import refuses
from tests.nn.parity import shake

TRUNKS = {
    "encoder": lambda: nn.Encoder(16, 2, 4),
    "encoder post": lambda: nn.Encoder(16, 2, 4, norm_position="post", position=nn.Sinusoidal(16)),
    "encoder normformer": lambda: nn.Encoder(16, 2, 4, extras=nn.NORMFORMER, position=nn.Learned(16, 12)),
    "encoder modern": lambda: nn.Encoder(
        16, 2, 4, position=nn.Rotary(4), norm="rms", activation="swiglu", kv_heads=2, qk_norm="rms", bias=False
    ),
    "encoder window": lambda: nn.Encoder(16, 2, 4, pattern=nn.Window(2), position=nn.RelativeBias(4, 3)),
    "encoder sparse": lambda: nn.Encoder(16, 2, 4, pattern=nn.Strided(3), position=nn.Rotary(4)),
    "encoder global": lambda: nn.Encoder(
        16, 2, 4, pattern=nn.Window(1) | nn.Global(1), position=nn.Rotary(4, pairs="halves")
    ),
    "encoder continuous": lambda: nn.Encoder(16, 2, 4, position=nn.Fourier(16)),
    "encoder additive": lambda: nn.Encoder(16, 2, 4, score="additive"),
    "encoder dot": lambda: nn.Encoder(16, 2, 4, score="dot"),
    "encoder location": lambda: nn.Encoder(16, 2, 4, score="location"),
    "encoder content": lambda: nn.Encoder(16, 2, 4, score="content"),
    "encoder general": lambda: nn.Encoder(16, 2, 4, score="general"),
    "encoder of real time": lambda: nn.Encoder(16, 2, 4, position=nn.Rotary(4, periods=(0.5, 20), heads=4)),
    "encoder of spectra": lambda: nn.Encoder(
        16, 2, 4, position=nn.Rotary(4, periods=(0.5, 20), heads=4), turn_values=True
    ),
    "encoder modulated": lambda: nn.Encoder(16, 2, 4, position=nn.Modulation(16, longest=20.0, harmonics=3)),
    "encoder without residual": lambda: nn.Encoder(
        16, 2, 4, residual=False, norm_position="post", activation="tanh", position=nn.UnpairedSinusoidal(16)
    ),
    "conformer": lambda: nn.Conformer(16, 2, 4, position=nn.Rotary(4, share=0.5)),
    "conformer pre": lambda: nn.Conformer(16, 2, 4, width=5, norm_position="pre", pattern=nn.Window(4)),
    "decoder": lambda: nn.Decoder(16, 2, 4, position=nn.Learned(16, 12)),
    "decoder window": lambda: nn.Decoder(16, 2, 4, pattern=nn.Window(3), position=nn.Rotary(4)),
    "decoder multi-query": lambda: nn.Decoder(16, 2, 4, kv_heads=1, position=nn.RelativeBias(4, 3)),
    "rnn": lambda: nn.Recurrent(16, 2, "rnn"),
    "gru both ways": lambda: nn.Recurrent(16, 2, "gru", bidirectional=True),
    "lstm both ways": lambda: nn.Recurrent(16, 2, "lstm", bidirectional=True, position=nn.Sinusoidal(16)),
    "convnet": lambda: nn.ConvNet(16, 2, 3, dilation_growth=2),
    "deep_sets": lambda: nn.DeepSets(16, [16, 16]),
    "resnet": lambda: nn.ResNet(16, [8, 16]),
    "edge_conv": lambda: nn.EdgeConvNet(16, [16, 16], 4),
    "point_cloud_transformer": lambda: nn.PointCloudTransformer(16, 16, 1, [16], 4),
}
LENGTHS = torch.tensor([5, 0, 9, 1, 3])


@pytest.fixture(params=TRUNKS)
def trunk(request):
    return shake(TRUNKS[request.param]()).double().eval()


@pytest.fixture
def ragged():
    return nn.Ragged(LENGTHS)


@pytest.fixture
def tokens():
    return torch.randn(int(LENGTHS.sum()), 16).double()


def test_packed_equals_padded(trunk, ragged, tokens):
    padded = trunk(ragged.pad(tokens), ragged.valid)
    torch.testing.assert_close(trunk(tokens, ragged), ragged.flatten(padded), atol=1e-12, rtol=1e-12)
    assert not padded[~ragged.valid].any()


def test_padding_and_what_stands_there_change_nothing(trunk, ragged, tokens):
    x, valid = ragged.pad(tokens), ragged.valid
    expected = trunk(x, valid)
    poisoned = x.masked_fill(~valid[..., None], torch.nan)
    torch.testing.assert_close(trunk(poisoned, valid), expected, atol=1e-12, rtol=1e-12)
    wide = torch.cat([x, torch.full((5, 3, 16), torch.inf)], 1)
    wider = trunk(wide, torch.nn.functional.pad(valid, (0, 3)))
    torch.testing.assert_close(wider[:, : x.shape[1]], expected, atol=1e-12, rtol=1e-12)


def test_company_changes_nothing(trunk, ragged, tokens):
    together = trunk(ragged.pad(tokens), ragged.valid)
    for i, (end, length) in enumerate(zip(ragged.ends, LENGTHS)):
        alone = trunk(tokens[None, end - length : end])
        torch.testing.assert_close(alone[0], together[i, :length], atol=1e-12, rtol=1e-12)


def test_a_tail_of_no_sequence_is_allowed(trunk, ragged, tokens):
    longer = nn.Ragged(LENGTHS, total=ragged.total + 4)
    x = torch.cat([tokens, torch.full((4, 16), torch.nan)])
    found = trunk(x, longer)
    torch.testing.assert_close(found[:-4], trunk(tokens, ragged), atol=1e-12, rtol=1e-12)
    assert not found[-4:].any()


def test_coordinates_travel_with_both_layouts(trunk, ragged, tokens):
    at = torch.randint(0, 12, (ragged.total,))
    packed, padded = trunk(tokens, ragged, at=at), trunk(ragged.pad(tokens), ragged.valid, at=ragged.pad(at))
    torch.testing.assert_close(packed, ragged.flatten(padded), atol=1e-12, rtol=1e-12)


def test_coordinates_at_padding_change_nothing(trunk, ragged, tokens):
    x, valid, at = ragged.pad(tokens), ragged.valid, torch.rand(5, 9).double() * 9
    poisoned = at.masked_fill(~valid, torch.nan)
    torch.testing.assert_close(trunk(x, valid, at=poisoned), trunk(x, valid, at=at), atol=1e-12, rtol=1e-12)


def test_copies_are_independent_and_equal(trunk, ragged, tokens):
    other = copy.deepcopy(trunk)
    other.load_state_dict(trunk.state_dict())
    torch.testing.assert_close(other(tokens, ragged), trunk(tokens, ragged))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert all(parameter.any() for parameter in trunk.parameters())


def test_nothing_at_all_is_legal(trunk):
    assert trunk(torch.zeros(2, 0, 16).double()).shape == (2, 0, 16)
    assert trunk(torch.zeros(0, 3, 16).double()).shape == (0, 3, 16)
    assert trunk(torch.zeros(0, 16).double(), nn.Ragged(torch.tensor([0, 0]))).shape == (0, 16)
    alone = trunk(torch.randn(2, 4, 16).double(), torch.zeros(2, 4, dtype=torch.bool))
    assert not alone.any()


def test_gradients_reach_every_parameter_and_stay_finite(trunk, ragged, tokens):
    trunk.train()
    x = ragged.pad(tokens).requires_grad_()
    trunk(x, ragged.valid).square().sum().backward()
    for name, parameter in [("x", x), *trunk.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    assert not x.grad[~ragged.valid].any()


def test_watching_shows_every_block_and_changes_nothing(trunk, ragged, tokens):
    x, watch = ragged.pad(tokens), nn.Watch()
    assert torch.equal(trunk(x, ragged.valid, watch=watch), trunk(x, ragged.valid))
    assert list(watch.hidden) == ["input", "blocks.0", "blocks.1"]
    assert all(hidden.shape == x.shape for hidden in watch.hidden.values())
    if isinstance(trunk, (nn.Encoder, nn.Decoder)):
        assert list(watch.attention) == list(watch.kernels) == ["blocks.0.attention", "blocks.1.attention"]
        for weights in watch.attention.values():
            rows = weights.sum(-1).transpose(1, 2)[ragged.valid]
            torch.testing.assert_close(rows, torch.ones_like(rows))
            assert not weights.masked_select(~ragged.valid[:, None, None]).any()


def test_wrong_layouts_are_answered(trunk, ragged, tokens):
    with refuses("(B, N, D)", tuple(tokens.shape), hint="Ragged(lengths)"):
        trunk(tokens)
    with refuses("(18, D)", "(17, 16)"):
        trunk(tokens[:-1], ragged)
    with refuses(16, "(1, 18, 15)"):
        trunk(tokens[None, :, :15])
    with refuses("valid", "(1, 18)", "float32"):
        trunk(tokens[None], torch.ones(1, 18))
    if not isinstance(trunk, (nn.Encoder, nn.Decoder)):
        with refuses(type(trunk).__name__, "(1, 1, 18, 18)"):
            trunk(tokens[None], bias=torch.zeros(1, 1, 18, 18))
