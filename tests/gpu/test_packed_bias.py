"""Attention within small sets on CUDA against the definition in float64 on the CPU: values, gradients, dropout."""

import pytest
import torch

from sciformer.nn import Documents, Encoder, PairBias, Ragged, Request, Sight, Triangle, choose
from sciformer.nn.attention.kernels import packed_bias
from tests.nn.attention.packed import assert_near, drawn, result

# What the compiler says of itself: it uses what PyTorch gives up, and float32 products could be faster but coarser.
QUIET = ("ignore:.*torch.jit.*:DeprecationWarning", "ignore:TensorFloat32 tensor cores:UserWarning")
pytestmark = [pytest.mark.gpu, *map(pytest.mark.filterwarnings, QUIET)]
LENGTHS = [45, 0, 17, 1, 128, 64, 65, 0, 90, 2]
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def layout(device, lengths=LENGTHS, tail=37):
    return Ragged(
        torch.tensor(lengths, device=device),
        total=sum(lengths) + tail,
        longest=max(lengths),
        pairs=sum(n * (n + 1) // 2 for n in lengths) + tail,
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("heads", "width"), [(8, 16), (4, 8), (2, 64), (3, 20)])
def test_it_agrees_with_the_definition(heads, width, bias, dtype):
    for lengths in (LENGTHS, [16] * 5, [30, 7], [256, 3]):
        given = [x if x is None else x.to(dtype) for x in drawn(heads, width, lengths, tail=37, bias=bias)]
        found = result("packed_bias", dtype, *given, lengths, device="cuda")
        assert_near(found, result("reference", torch.float64, *given, lengths), TOLERANCE[dtype], lengths)


def masks(ragged, bits, heads, p):
    """(T, H, 64) what is dropped: each value is a unit vector, so the output shows the weights."""
    x = torch.zeros(ragged.total, 3, heads, 64, device="cuda")
    x[torch.arange(ragged.total), 2, :, ragged.position.clamp(0, 63)] = 1
    both = (ragged.ends, ragged.lengths) * 2
    out, _ = packed_bias.attend_packed(x.flatten(1), None, *both, None, None, bits, heads, 1.0, p, ragged.longest)
    return out.view(-1, heads, 64) > 0


def test_dropout_is_the_same_backwards():
    heads, p, ragged = 4, 0.3, layout("cuda", [64, 7, 0, 33], tail=0)
    bits = torch.randint(2**31 - 1, (heads, ragged.total), dtype=torch.int32, device="cuda")
    kept, triangle = masks(ragged, bits, heads, p), Triangle(ragged)
    assert abs(kept[ragged.position == 0].float().mean().item() - 0.7 * 26 / 64) < 0.1
    x = torch.randn(ragged.total, 3 * heads * 64, device="cuda", requires_grad=True)
    bias = torch.randn(heads, ragged.pairs, device="cuda", requires_grad=True)
    both = (ragged.ends, ragged.lengths) * 2
    found, _ = packed_bias.attend_packed(x, None, *both, bias, triangle.starts, bits, heads, 0.125, p, ragged.longest)
    q, k, v = (ragged.pad(part).transpose(1, 2) for part in x.view(-1, 3, heads, 64).unbind(1))
    score = q @ k.transpose(2, 3) * 0.125 + PairBias(bias.t(), triangle.starts, ragged).dense()
    weights = score.masked_fill(~ragged.valid[:, None, None], -1e30).softmax(-1)
    weights = weights * ragged.pad(kept).transpose(1, 2)[..., : ragged.longest] / (1 - p)
    expected = ragged.flatten((weights @ v).transpose(1, 2)).flatten(1)
    up = torch.randn_like(expected)
    pairs = zip(torch.autograd.grad(found, (x, bias), up), torch.autograd.grad(expected, (x, bias), up))
    for mine, definition in [(found, expected), *pairs]:
        assert (mine - definition).norm() < 5e-3 * definition.norm()


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 16), (torch.float32, 64), (torch.bfloat16, 64)], ids=str)
def test_sets_of_several_blocks_with_dropout(dtype, width):
    """Every time the same to the last bit, and in single precision the slopes of the loss are the gradient."""
    heads, p, ragged = 2, 0.3, layout("cuda", [200, 3, 0, 65, 64])
    bits = torch.randint(2**31 - 1, (heads, ragged.total), dtype=torch.int32, device="cuda")
    x = torch.randn(ragged.total, 3 * heads * width, device="cuda", dtype=dtype, requires_grad=True)
    up = torch.randn(ragged.total, heads * width, device="cuda", dtype=dtype)
    both = (ragged.ends, ragged.lengths) * 2

    def call(x):
        return packed_bias.attend_packed(x, None, *both, None, None, bits, heads, width**-0.5, p, ragged.longest)[0]

    first, again = (torch.autograd.grad(call(x), x, up)[0] for _ in range(2))
    assert torch.equal(first, again)
    assert not first[332:].any()
    if dtype == torch.float32:
        for part in range(3):  # queries, keys, values
            step = torch.zeros_like(x)
            step[:, part * heads * width : (part + 1) * heads * width].normal_()
            ends = [call(x.detach() + sign * 0.01 * step) for sign in (1, -1)]
            slope = float(((ends[0] - ends[1]).double() * up).sum() / 0.02)
            assert slope == pytest.approx(float((first.double() * step).sum()), rel=2e-2, abs=0.1), part


def test_it_is_chosen_and_compiles_whole():
    ragged = layout("cuda")
    q = torch.zeros(1, 8, ragged.total, 16, device="cuda", dtype=torch.bfloat16)
    assert choose(Request(q, q, q, Sight(Documents(ragged)), dropout=0.1)) == "packed_bias"
    encoder = Encoder(128, 2, 8, dropout=0.0).cuda()
    x = torch.randn(ragged.total, 128, device="cuda")
    values = torch.randn(ragged.pairs, 8, device="cuda", requires_grad=True)

    def call(x, values):
        with torch.autocast("cuda", torch.bfloat16):
            return encoder(x, ragged, bias=PairBias(values, Triangle(ragged).starts, ragged))

    results = []
    for one in (call, torch.compile(call, fullgraph=True)):
        out = one(x, values)
        results.append(
            [out, *torch.autograd.grad(out.square().mean(), (values, encoder.blocks[0].attention.qkv.weight))]
        )
    for mine, other in zip(*results):
        assert (mine - other).norm() < 3e-2 * other.norm()


def test_a_recorded_step_draws_anew():
    ragged = layout("cuda")
    encoder = Encoder(128, 1, 8, attention_dropout=0.5, hidden_dropout=0.0).cuda()
    x = torch.randn(ragged.total, 128, device="cuda")
    call = torch.compile(lambda x: encoder(x, ragged), mode="reduce-overhead")
    found = []
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        found.append(call(x).detach().clone())
    assert all(not torch.equal(found[-1], other) for other in found[:-1])
