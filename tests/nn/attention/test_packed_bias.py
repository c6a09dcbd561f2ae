"""Attention within small sets against the definition, in Triton's interpreter: values and gradients, no GPU needed."""

import os
import sys
import warnings

import pytest
import torch

if torch.cuda.is_available():
    pytest.skip("tests/gpu has these on the GPU", allow_module_level=True)
if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton was imported without its interpreter", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"  # before the import
pytest.importorskip("triton")

from sciformer import nn
from sciformer.nn.attention.kernels import packed_bias, request
from tests.errors import refuses
from tests.nn.attention.packed import assert_near, drawn, result

# Triton 3.6 makes whole numbers of arrays of one, which NumPy gave up in 2.4 and warned of before.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
LENGTHS = [5, 0, 17, 1, 33, 0]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch):
    monkeypatch.setattr(request, "TRITON_INTERPRETED", True)


@pytest.fixture(autouse=True, scope="module")
def _works():
    """Skip where Triton's interpreter does not go with NumPy; all else that is wrong shows in the tests."""
    ragged = nn.Ragged([2])
    both = (ragged.ends, ragged.lengths) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            packed_bias.attend_packed(torch.zeros(2, 48), None, *both, None, None, None, 1, 1.0, 0.0, 2)
        except Exception as error:
            if "0-dimensional arrays can be converted" in str(error):
                pytest.skip("this NumPy is too new for the interpreter of this Triton")


def compare(*given, lengths=LENGTHS, dtype=torch.float32, tolerance=2e-5):
    found = result("packed_bias", dtype, *given, lengths)
    assert_near(found, result("reference", torch.float64, *given, lengths), tolerance)


CASES = [((heads, width), LENGTHS) for heads, width in ((2, 16), (3, 8), (1, 64), (2, 20))]
CASES += [((2, 16), lengths) for lengths in ([130, 3], [64, 65], [16], [0, 0, 2], [256])]


@pytest.mark.parametrize(("shape", "lengths"), CASES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_it_agrees_with_the_definition(shape, lengths, bias):
    compare(*drawn(*shape, lengths, bias=bias), lengths=lengths)


def test_scores_far_below_zero_in_sets_of_several_blocks():
    """exp(-level) of a key that is not there would be infinite."""
    q, k, v, _, up = drawn(1, 16, [70], bias=False)
    compare(q.abs() * 8, -k.abs() * 8, v, None, up, lengths=[70], tolerance=1e-4)


@pytest.mark.parametrize(("lengths", "bias"), [(LENGTHS, True), ([130, 3], False)], ids=str)
def test_half_precision_is_near(lengths, bias):
    compare(*drawn(2, 16, lengths, bias=bias), lengths=lengths, dtype=torch.float16, tolerance=3e-3)


def test_shared_heads_and_no_sets_at_all():
    compare(*drawn(4, 8, LENGTHS, kv_heads=2))
    for lengths in ([], [0, 0]):
        found = result("packed_bias", torch.float32, *drawn(2, 16, lengths, tail=2), lengths or [0])
        assert not any(part.any() for part in found)


def test_nothing_reaches_the_tail_and_it_gets_zeros():
    q, k, v, dense, up = drawn(2, 16, LENGTHS)
    clean = result("packed_bias", torch.float32, q, k, v, dense, up, LENGTHS)
    for x in (q, k, v, up):
        x[:, :, -3:] = torch.nan
    dense[-12:] = torch.nan
    found = result("packed_bias", torch.float32, q, k, v, dense, up, LENGTHS)
    assert all(torch.equal(a, b) for a, b in zip(found, clean))
    assert not any(part[:, :, -3:].any() for part in found[:4])
    assert not found[4][-12:].any()


def test_a_bias_of_minus_infinity_hides():
    given = drawn(1, 16, [4, 3])
    given[3][:4] = -torch.inf
    found = result("packed_bias", torch.float32, *given, [4, 3])
    assert_near(found[:4], result("reference", torch.float64, *given, [4, 3]), 2e-5)
    assert not found[4][:4].any()


@pytest.mark.parametrize("asked", [[1] * 6, [3, 0, 40, 0, 1, 2], [0, 2, 70, 0, 9, 1]], ids=str)
def test_queries_of_other_lengths(asked):
    q = torch.randn(1, 2, sum(asked) + 1, 16)
    _, k, v, _, _ = drawn(2, 16, LENGTHS)
    up, results = torch.randn_like(q), []
    for kernel, dtype in (("packed_bias", torch.float32), ("reference", torch.float64)):
        inputs = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        pattern = nn.Documents(nn.Ragged(asked, q.shape[2]), keys=nn.Ragged(LENGTHS, k.shape[2]))
        out = nn.attend(*inputs, nn.Sight(pattern), kernel=kernel)
        results.append([out.detach(), *torch.autograd.grad(out, inputs, up.to(dtype))])
    assert_near(*results, 2e-5)


def call(x, bias, ragged, starts, bits, heads, p):
    width = x.shape[1] // (3 * heads)
    both = (ragged.ends, ragged.lengths) * 2
    return packed_bias.attend_packed(x, None, *both, bias, starts, bits, heads, width**-0.5, p, ragged.longest)[0]


def draw(heads, ragged):
    return torch.randint(2**31 - 1, (heads, ragged.total), dtype=torch.int32)


def masks(ragged, bits, heads, p, pairs):
    """(H, T, N) what the kernel drops: each value is a unit vector, so the output shows the weights."""
    x = torch.zeros(ragged.total, 3, heads, 32)
    x[torch.arange(ragged.total), 2, :, ragged.position.clamp(0, 31)] = 1
    bias = torch.zeros(heads, pairs)
    weights = call(x.flatten(1), bias, ragged, nn.Triangle(ragged).starts, bits, heads, p)
    return weights.view(-1, heads, 32).transpose(0, 1) > 0


def test_dropout_is_the_same_backwards():
    """Against the definition with the mask that the forward pass showed."""
    ragged, heads, p = nn.Ragged([7, 32, 0, 20], longest=32), 2, 0.3
    starts, pairs, bits = nn.Triangle(ragged).starts, ragged.pairs, draw(heads, ragged)
    kept = masks(ragged, bits, heads, p, pairs)
    x, bias = torch.randn(ragged.total, 3 * heads * 32), torch.randn(heads, pairs)
    up, results = torch.randn(ragged.total, heads * 32), []
    given = [x.requires_grad_(), bias.requires_grad_()]
    out = call(*given, ragged, starts, bits, heads, p)
    results.append([out, *torch.autograd.grad(out, given, up)])
    given = [x.detach().double().requires_grad_(), bias.detach().double().requires_grad_()]
    q, k, v = (ragged.pad(part).transpose(1, 2) for part in given[0].view(-1, 3, heads, 32).unbind(1))
    dense = nn.PairBias(given[1].t(), starts, ragged).dense()
    score = q @ k.transpose(2, 3) * 32**-0.5 + dense
    weights = score.masked_fill(~ragged.valid[:, None, None], -1e30).softmax(-1)
    weights = weights * ragged.pad(kept.transpose(0, 1)).transpose(1, 2)[..., : ragged.longest] / (1 - p)
    out = ragged.flatten((weights @ v).transpose(1, 2)).flatten(1)
    results.append([out, *torch.autograd.grad(out, given, up.double())])
    assert_near(*results, 2e-5)


def test_dropout_is_the_same_backwards_in_sets_of_several_blocks():
    """What is kept follows from the bits alone, so the loss is a smooth function: its slopes are the gradient."""
    ragged, heads, p = nn.Ragged([70, 0, 9], 81, 70), 2, 0.3
    bits, up = draw(heads, ragged), torch.randn(ragged.total, heads * 16)
    x = torch.randn(ragged.total, 3 * heads * 16).requires_grad_()
    out = call(x, None, ragged, None, bits, heads, p)
    (gradient,) = torch.autograd.grad(out, x, up)
    assert not gradient[79:].any()
    plain = torch.autograd.grad(call(x, None, ragged, None, None, heads, 0.0), x, up)[0]
    assert not torch.allclose(gradient, plain, atol=0.1)
    for part in range(3):  # queries, keys, values
        step = torch.zeros_like(x)
        step[:, part * 32 : part * 32 + 32] = torch.randn(ragged.total, 32)
        ends = [call(x.detach() + sign * 0.01 * step, None, ragged, None, bits, heads, p) for sign in (1, -1)]
        slope = float(((ends[0] - ends[1]).double() * up).sum() / 0.02)
        assert slope == pytest.approx(float((gradient.double() * step).sum()), rel=1e-2, abs=0.02), part


def test_dropout_drops_its_share_everywhere():
    ragged = nn.Ragged([32] * 16, longest=32)
    bits = [draw(2, ragged) for _ in range(2)]
    kept, other = (masks(ragged, some, 2, 0.1, ragged.pairs) for some in bits)
    for share in (kept.float().mean(), kept.float().mean((1, 2)), kept.float().mean((0, 1))):
        assert ((share - 0.9).abs() < 0.04).all(), share
    both = torch.stack([kept.flatten(), other.flatten(), kept[0].roll(1, 0).repeat(2, 1).flatten()]).double()
    assert (torch.corrcoef(both) - torch.eye(3)).abs().max() < 0.02
    assert torch.equal(kept, masks(ragged, bits[0], 2, 0.1, ragged.pairs))


def test_an_encoder_takes_it_and_equals_the_padded_one(monkeypatch):
    torch.manual_seed(1)
    encoder = nn.Encoder(32, 2, 2)
    ragged = nn.Ragged(LENGTHS, sum(LENGTHS) + 3)
    x, dense = torch.randn(ragged.total, 32), torch.randn(ragged.pairs, 2)
    seen = []
    monkeypatch.setattr(
        packed_bias, "attend_packed", lambda *a, real=packed_bias.attend_packed: seen.append(a) or real(*a)
    )
    found = encoder(x, ragged, bias=nn.PairBias(dense, nn.Triangle(ragged).starts, ragged))
    assert len(seen) == 2
    assert seen[0][0].shape == (ragged.total, 96)
    padded = encoder(ragged.pad(x), ragged.valid, bias=nn.PairBias(dense, nn.Triangle(ragged).starts, ragged).dense())
    torch.testing.assert_close(found, ragged.flatten(padded), atol=1e-5, rtol=1e-5)


def test_dropout_in_training_follows_the_seed():
    attention = nn.Attention(32, 2, dropout=0.5)
    ragged = nn.Ragged([9, 4])
    x, sight = torch.randn(1, ragged.total, 32), nn.Sight(nn.Documents(ragged))
    found = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        found.append(attention(x, sight=sight))
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])


def test_what_it_refuses():
    ragged = nn.Ragged([3, 300])
    q = torch.zeros(1, 1, ragged.total, 16)
    for sight, mention in (
        (nn.Sight(nn.Documents(ragged)), 256),
        (nn.Sight(nn.Documents(nn.Ragged([3], ragged.total), nn.Window(1))), "Window(1)"),
        (nn.Sight(), "Full()"),
        (nn.Sight(nn.Documents(nn.Ragged([3], ragged.total)), bias=torch.zeros(1, 1, 303, 303)), "bias"),
        (nn.Sight(nn.Documents(nn.Ragged([3], ragged.total)), valid=torch.ones(1, 303, dtype=torch.bool)), "valid"),
    ):
        with refuses(mention, "'packed_bias'", hint="kernel='auto'"):
            nn.attend(q, q, q, sight, kernel="packed_bias")
    assert nn.choose(nn.Request(q, q, q, nn.Sight(nn.Documents(nn.Ragged([3], ragged.total))))) == "packed_bias"


def test_a_step_is_one_graph():
    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.pool = nn.Encoder(32, 1, 2), nn.ClassAttention(32, 2, 1)

        def forward(self, x, values, ragged):
            x = self.encoder(x, ragged, bias=nn.PairBias(values, nn.Triangle(ragged).starts, ragged))
            return self.pool(x, ragged)

    model, lengths = Both(), [9, 0, 4]
    ragged = nn.Ragged(lengths, 16, 16, 64)
    x, values = torch.randn(16, 32), torch.randn(64, 2, requires_grad=True)
    results = []
    for call in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        out = call(x, values, ragged)
        results.append([out, *torch.autograd.grad(out.square().sum(), [values, *model.parameters()])])
    for mine, other in zip(*results):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_a_compiler_knows_the_shapes():
    ragged = nn.Ragged([9, 4])
    x, bias = torch.randn(ragged.total, 96), torch.randn(2, ragged.pairs)
    both = (ragged.ends, ragged.lengths) * 2
    args = (x, None, *both, bias, nn.Triangle(ragged).starts, draw(2, ragged), 2, 0.25, 0.1, 9)
    torch.library.opcheck(packed_bias.attend_packed, args, test_utils=("test_schema", "test_faketensor"))
    memory = torch.randn(ragged.total, 64)
    args = (x[:, :32].contiguous(), memory, *both, None, None, None, 2, 0.25, 0.0, 9)
    torch.library.opcheck(packed_bias.attend_packed, args, test_utils=("test_schema", "test_faketensor"))
