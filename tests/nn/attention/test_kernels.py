"""Every kernel against the definition: values and gradients, over the product of options."""

import itertools

import pytest
import torch

from sciformer.nn.attention.kernels import KERNELS, Request, attend, choose, flex
from sciformer.nn.attention.masks import Causal, Documents, Full, Global, Sight, Strided, Window
from sciformer.nn.attention.scores import SCORES, make_score
from sciformer.nn.ragged import Ragged
from tests.errors import refuses

PATTERNS = {
    "full": Full(),
    "causal": Causal(),
    "window": Window(5),
    "last": Causal() & Window(7),
    "uneven": Window(2, 9),
    "strided": Strided(4),
    "sparse": Causal() & Strided(3),
    "global": Window(4) | Global(2),
    "self": Window(0),
    "documents": Documents(Ragged(torch.tensor([17, 0, 1, 13, 6])), Full()),
    "documents_causal": Documents(Ragged(torch.tensor([20, 0, 17])), Causal()),
    "documents_window": Documents(Ragged(torch.tensor([30, 7])), Window(2) | Global(1)),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
N = 37
OPTIONS = list(itertools.product((1, 2, 4), (False, True), (None, "each", "shared")))


def can(kernel, pattern):
    q = torch.zeros(1, 4, N, 8)
    return kernel == "auto" or KERNELS[kernel].supports(Request(q, q, q, Sight(pattern))) is None


def make(pattern, kv_heads, valid, bias, dtype, n=N, m=N):
    batch = 1 if isinstance(pattern, Documents) else 2
    q = torch.randn(batch, 4, n, 8, dtype=dtype, requires_grad=True)
    k = torch.randn(batch, kv_heads, m, 8, dtype=dtype, requires_grad=True)
    v = torch.randn(batch, kv_heads, m, 6, dtype=dtype, requires_grad=True)
    mask = None
    if valid:
        mask = torch.rand(batch, m) > 0.4
        mask[-1] = batch == 1 and mask[-1]  # a whole sample without keys, where there are two
    shape = {None: None, "each": (batch, 4, n, m), "shared": (1, 1, n, m)}[bias]
    dense = None if shape is None else torch.randn(shape, dtype=dtype, requires_grad=True)
    return q, k, v, mask, dense


def result(kernel, pattern, q, k, v, mask, dense, **options):
    out = attend(q, k, v, Sight(pattern, mask, dense), kernel=kernel, **options)
    inputs = [x for x in (q, k, v, dense) if x is not None]
    return [out, *torch.autograd.grad((out * torch.arange(out.numel()).view_as(out).cos()).sum(), inputs)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("kernel", ["auto", "sdpa", "chunked"])
def test_kernels_agree_with_the_definition(kernel, name, dtype):
    pattern = PATTERNS[name]
    for kv_heads, valid, bias in OPTIONS if can(kernel, pattern) else ():
        inputs = make(pattern, kv_heads, valid, bias, dtype)
        for found, expected in zip(result(kernel, pattern, *inputs), result("reference", pattern, *inputs)):
            assert found.isfinite().all()
            torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_the_product_is_large():
    # 12 patterns, 18 options, 2 precisions; chunked has no business with the four unbounded patterns.
    assert [name for name in PATTERNS if not can("chunked", PATTERNS[name])] == ["full", "causal", "strided", "sparse"]
    assert all(can("sdpa", pattern) for pattern in PATTERNS.values())
    assert len(OPTIONS) == 18


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", PATTERNS)
def test_flex_agrees_with_the_definition_in_the_forward_pass(name):
    pattern = PATTERNS[name]
    for kv_heads, valid, bias in [(4, False, None), (2, True, "each"), (1, True, None)]:
        q, k, v, mask, dense = make(pattern, kv_heads, valid, bias, torch.float64)
        with torch.no_grad():
            inputs = [x if x is None else x.detach() for x in (q, k, v)]
            sight = Sight(pattern, mask, None if dense is None else dense.detach())
            found = attend(*inputs, sight, kernel="flex")
        expected = attend(q, k, v, Sight(pattern, mask, dense), kernel="reference")
        torch.testing.assert_close(found, expected.detach(), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(("n", "m", "start"), [(300, 300, 0), (128, 256, 128), (130, 515, 64)])
def test_flex_skips_exactly_the_blocks_a_pattern_hides(name, n, m, start):
    pattern = PATTERNS[name]
    if isinstance(pattern, Documents):
        lengths = torch.tensor([n // 2, 1, 0, n - n // 2 - 1])
        pattern, m, start = Documents(Ragged(lengths), pattern.within), n, 0
    valid = torch.rand(2, m) > 0.2
    valid[:, 128:256] = False
    valid[1, :128] = True
    dense = pattern.mask(n, m, start)
    some, every = flex.open_blocks(pattern, n, m, start, torch.device("cpu"))
    for i, j in itertools.product(range(some.shape[0]), range(some.shape[1])):
        block = dense[128 * i : 128 * i + 128, 128 * j : 128 * j + 128]
        if block.shape == (128, 128) or not pattern.uniform:
            assert some[i, j] == block.any()
            assert every[i, j] == block.all()
        else:  # a rule that knows distances alone may count pairs beyond the edge, which the kernel cuts off
            assert some[i, j] >= block.any()
            assert every[i, j] <= block.all()
    mask = flex.build(pattern, n, m, start, valid, torch.device("cpu"))
    kept = mask.to_dense()[:, 0].bool()
    for b, i, j in itertools.product(range(2), range(some.shape[0]), range(some.shape[1])):
        real = valid[b, 128 * j : 128 * j + 128]
        assert kept[b, i, j] == (some[i, j] and real.any())
    whole = mask.full_kv_num_blocks[:, 0].sum(1)
    expected = [
        sum(
            bool(every[i, j] and valid[b, 128 * j : 128 * j + 128].all())
            for i in range(some.shape[0])
            for j in range(some.shape[1])
        )
        for b in range(2)
    ]
    assert whole.tolist() == expected


def test_a_score_that_is_no_product_goes_to_the_reference():
    q, k, v, *_ = make(Full(), 4, False, None, torch.float64)
    for name in SCORES:
        score = make_score(name, 8, 4).double()
        assert choose(Request(q, k, v, Sight(), score)) == ("sdpa" if score.fused else "reference")
        if not score.fused:
            with refuses(type(score).__name__, "'sdpa'", hint="kernel='auto'"):
                attend(q, k, v, score=score, kernel="sdpa")


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_all_scores_in_one_call(name, kv_heads):
    q, k, v, mask, dense = make(Causal(), kv_heads, True, "each", torch.float64)
    score = make_score(name, 8, 4).double()
    auto = attend(q, k, v, Sight(Causal(), mask, dense), score=score)
    reference = attend(q, k, v, Sight(Causal(), mask, dense), score=score, kernel="reference")
    torch.testing.assert_close(auto, reference, atol=1e-12, rtol=1e-12)


def test_the_choice_follows_pattern_and_length():
    def chosen(n, pattern):
        q = torch.zeros(1, 1, n, 8)
        return choose(Request(q, q, q, Sight(pattern)))

    assert chosen(4096, Full()) == chosen(4096, Causal()) == "sdpa"
    assert chosen(4096, Window(64)) == chosen(4096, Window(64) | Global(1)) == "chunked"
    assert chosen(100, Window(64)) == chosen(4096, Strided(64)) == "sdpa"
    assert chosen(10, Documents(Ragged(torch.tensor([4, 6])), Causal())) == "chunked"
    assert chosen(10, Documents(Ragged(torch.tensor([4, 6])))) == "grouped"
    assert chosen(200, Documents(Ragged(torch.tensor([4, 196])))) == "grouped"  # of uneven length
    assert chosen(380, Documents(Ragged(torch.tensor([184, 196])))) == "grouped"
    assert chosen(780, Documents(Ragged(torch.tensor([384, 396])))) == "chunked"


@pytest.mark.parametrize("kernel", ["auto", "reference", "sdpa"])
@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (0, 0)])
def test_empty_sequences_give_zeros(kernel, n, m):
    q, k, v, *_ = make(Full(), 2, False, None, torch.float32, n, m)
    out = attend(q, k, v, kernel=kernel)
    assert out.shape == (2, 4, n, 6)
    assert not out.any()
    torch.autograd.grad(out.sum(), v)


def test_a_query_that_sees_nothing_gets_zeros_whatever_hides_the_keys():
    q, k, v, *_ = make(Full(), 4, False, None, torch.float64, 5, 5)
    hidden = torch.zeros(2, 5, dtype=torch.bool)
    shut = torch.full((1, 1, 5, 5), -torch.inf, dtype=torch.float64, requires_grad=True)
    for kernel in ("reference", "sdpa"):
        for sight in (Sight(valid=hidden), Sight(bias=shut), Sight(Causal(), start=-9)):
            out = attend(q, k, v, sight, kernel=kernel)
            assert not out.any()
            for gradient in torch.autograd.grad(out.sum(), (q, k, v)):
                assert gradient.isfinite().all()


def test_nan_is_not_hidden():
    q, k, v, *_ = make(Full(), 4, False, None, torch.float32, 5, 5)
    broken = torch.full_like(q, torch.nan)
    for kernel in ("reference", "sdpa"):
        assert attend(broken, k, v, kernel=kernel).isnan().all()


def test_dropout_keeps_the_mean_and_is_repeatable():
    q, k, v, *_ = make(Window(3), 4, False, None, torch.float64)
    plain = attend(q, k, v, Sight(Window(3)))
    for kernel in ("reference", "sdpa", "chunked"):
        torch.manual_seed(1)
        drawn = [attend(q, k, v, Sight(Window(3)), dropout=0.3, kernel=kernel).detach() for _ in range(400)]
        torch.manual_seed(1)
        assert torch.equal(drawn[0], attend(q, k, v, Sight(Window(3)), dropout=0.3, kernel=kernel))
        mean = torch.stack(drawn).mean(0)
        assert not torch.equal(drawn[0], drawn[1])
        assert (mean - plain).abs().mean() < 0.03
