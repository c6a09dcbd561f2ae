"""The kernels on CUDA against the definition in float64 on the CPU: values and gradients."""

import pytest
import torch

from sciformer import nn
from tests.errors import refuses
from tests.nn.attention.packed import assert_near

pytestmark = pytest.mark.gpu
N = 300
LENGTHS = torch.tensor([131, 0, 1, 100, 60])
PATTERNS = {
    "full": nn.Full(),
    "causal": nn.Causal(),
    "window": nn.Window(40),
    "last": nn.Causal() & nn.Window(70),
    "sparse": nn.Causal() & nn.Strided(16),
    "global": nn.Window(20) | nn.Global(2),
    "documents": nn.Documents(nn.Ragged(LENGTHS, total=N)),
    "documents_causal": nn.Documents(nn.Ragged(LENGTHS, total=N), nn.Causal()),
}
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}


def on_cuda(pattern):
    if isinstance(pattern, nn.Documents):
        return nn.Documents(nn.Ragged(pattern.queries.lengths.cuda(), N), pattern.within)
    return pattern


def both(kernel, pattern, dtype, kv_heads, valid, bias, width=32):
    """Ours on CUDA, and the definition in float64, from the same numbers."""
    batch = 1 if isinstance(pattern, nn.Documents) else 3
    shapes = [(batch, 4, N, width), (batch, kv_heads, N, width), (batch, kv_heads, N, width)]
    inputs = [torch.randn(shape).to(dtype) for shape in shapes]
    mask = None
    if valid:
        mask = torch.rand(batch, N) > 0.3
        mask[-1] = batch == 1
    dense = torch.randn(batch, 4, N, N).to(dtype) if bias else None
    upstream = torch.randn(batch, 4, N, width).to(dtype)
    results = []
    for device, precision, name, rule in (
        ("cuda", dtype, kernel, on_cuda(pattern)),
        ("cpu", torch.float64, "reference", pattern),
    ):
        q, k, v, b = (None if x is None else x.to(device, precision).requires_grad_() for x in (*inputs, dense))
        sight = nn.Sight(rule, None if mask is None else mask.to(device), b)
        out = nn.attend(q, k, v, sight, kernel=name)
        wanted = [x for x in (q, k, v, b) if x is not None]
        results.append([out.detach(), *torch.autograd.grad(out, wanted, upstream.to(device, precision))])
    return results


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", PATTERNS)
def test_sdpa_agrees(name, dtype):
    for kv_heads, valid, bias in [(4, False, False), (2, True, False), (1, False, True), (4, True, True)]:
        assert_near(
            *both("sdpa", PATTERNS[name], dtype, kv_heads, valid, bias), TOLERANCE[dtype], (kv_heads, valid, bias)
        )


@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "full"])
def test_flex_agrees(name):
    for dtype, kv_heads, valid, bias in [(torch.bfloat16, 2, True, False), (torch.float32, 4, False, True)]:
        assert_near(*both("flex", PATTERNS[name], dtype, kv_heads, valid, bias), TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["documents", "documents_causal"])
def test_flash_agrees(name):
    for kv_heads in (4, 1):
        assert_near(*both("flash", PATTERNS[name], torch.bfloat16, kv_heads, False, False), TOLERANCE[torch.bfloat16])


def test_flash_is_chosen_for_packed_sequences_that_are_too_long_for_packed_bias():
    q = torch.zeros(1, 2, N, 32, device="cuda", dtype=torch.bfloat16)
    long, short = (
        nn.Documents(nn.Ragged(torch.tensor(lengths, device="cuda"), N, max(lengths)))
        for lengths in ([290, 10], [150, 100])
    )
    assert nn.choose(nn.Request(q, q, q, nn.Sight(long))) == "flash"
    assert nn.choose(nn.Request(q, q, q, nn.Sight(short))) == "packed_bias"
    assert nn.choose(nn.Request(q, q, q, nn.Sight(long), dropout=0.1)) != "flash"
    assert nn.choose(nn.Request(q.float(), q.float(), q.float(), nn.Sight(short))) == "packed_bias"


def test_chunked_agrees_on_cuda_too():
    for name in ("window", "global", "documents_causal"):
        assert_near(*both("chunked", PATTERNS[name], torch.float32, 2, True, True), TOLERANCE[torch.float32])


@pytest.mark.parametrize("kernel", ["reference", "sdpa", "flex"])
def test_a_query_that_sees_nothing_gets_zeros(kernel):
    hidden = torch.zeros(2, 64, dtype=torch.bool, device="cuda")
    shut = torch.full((1, 1, 64, 64), -torch.inf, device="cuda", dtype=torch.bfloat16)
    q, k, v = (torch.randn(2, 4, 64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    for sight in (nn.Sight(nn.Window(4), valid=hidden), nn.Sight(bias=shut)):
        out = nn.attend(q, k, v, sight, kernel=kernel)
        assert not out.any()
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out.sum(), (q, k, v)))


def test_the_unfused_fallback_is_an_error():
    with torch._dynamo.config.patch(recompile_limit=1, automatic_dynamic_shapes=False):
        short, long = (torch.randn(1, 1, n, 32, device="cuda") for n in (128, 256))
        nn.attend(short, short, short, nn.Sight(nn.Window(17)), kernel="flex")
        with refuses(tuple(long.shape), hint="recompile_limit"):
            nn.attend(long, long, long, nn.Sight(nn.Window(17)), kernel="flex")


def test_many_lengths_do_not_exhaust_the_compiler():
    for n in range(256, 256 + 12 * 64, 64):
        q = torch.randn(1, 2, n, 32, device="cuda")
        found = nn.attend(q, q, q, nn.Sight(nn.Window(30)), kernel="flex")
        torch.testing.assert_close(
            found, nn.attend(q, q, q, nn.Sight(nn.Window(30)), kernel="reference"), atol=1e-3, rtol=1e-3
        )


def test_the_choice_on_cuda():
    q = torch.zeros(1, 1, 2048, 64, device="cuda")
    assert nn.choose(nn.Request(q, q, q, nn.Sight(nn.Causal()))) == "sdpa"
    assert nn.choose(nn.Request(q, q, q, nn.Sight(nn.Window(64)))) == "flex"
    assert nn.choose(nn.Request(q, q, q, nn.Sight(nn.Window(64)), dropout=0.1)) == "sdpa"


def test_a_compiled_encoder_equals_the_eager_one():
    for pattern in (nn.Full(), nn.Window(40)):
        encoder = nn.Encoder(64, 2, 2, position=nn.Rotary(32), pattern=pattern).cuda()
        x = torch.randn(2, 640, 64, device="cuda")
        expected = encoder(x)
        found = torch.compile(encoder, fullgraph=True)(x)
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
        found.square().mean().backward()
        assert all(p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("options", [{"qk_norm": "layer"}, {"score": "content"}, {"position": nn.Rotary(32)}], ids=str)
@pytest.mark.parametrize("pattern", [nn.Full(), nn.Window(60)], ids=repr)
def test_autocast_is_near_and_trains(pattern, options):
    encoder = nn.Encoder(64, 2, 2, pattern=pattern, norm="rms", **options).cuda()
    x, valid = torch.randn(2, 640, 64, device="cuda"), torch.rand(2, 640, device="cuda") > 0.2
    expected = encoder(x, valid)
    with torch.autocast("cuda", torch.bfloat16):
        found = encoder(x, valid)
    assert (found - expected).abs().mean() < 0.05 * expected.abs().mean()
    found.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in encoder.parameters())


@torch.no_grad()
def test_a_decoding_step_can_be_captured_as_a_graph():
    decoder = nn.Decoder(64, 2, 2, position=nn.Rotary(32), kv_heads=1).cuda().eval()
    x = torch.randn(2, 40, 64, device="cuda")
    expected = decoder(x)
    cache = decoder.cache(64)
    parts = [decoder(x[:, :8], cache=cache)]
    token = x[:, 8:9].clone()
    warm = decoder.cache(64)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        decoder(token, cache=warm)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    start = cache.slot.clone()
    with torch.cuda.graph(graph):
        out = decoder(token, cache=cache)
    cache.slot.copy_(start)  # capturing records the step, it does not take it
    for i in range(8, 40):
        token.copy_(x[:, i : i + 1])
        graph.replay()
        parts.append(out.clone())
    torch.testing.assert_close(torch.cat(parts, 1), expected, atol=1e-3, rtol=1e-3)


def test_packed_equals_padded_on_cuda():
    encoder = nn.Encoder(64, 2, 2, position=nn.Rotary(32)).cuda().eval()
    ragged = nn.Ragged(LENGTHS.cuda() * 3)
    x = torch.randn(ragged.total, 64, device="cuda")
    with torch.no_grad():
        packed, padded = encoder(x, ragged), encoder(ragged.pad(x), ragged.valid)
    torch.testing.assert_close(packed, ragged.flatten(padded), atol=2e-3, rtol=2e-3)
