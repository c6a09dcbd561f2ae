import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.nn import Ragged


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 6), max_size=6), st.integers(0, 4), st.booleans())
def test_pad_and_flatten_are_inverse(lengths, tail, wide):
    ragged = Ragged(torch.tensor(lengths, dtype=torch.int32), total=sum(lengths) + tail)
    flat = torch.arange(1.0, ragged.total + 1)
    flat = flat[:, None].expand(-1, 3) if wide else flat
    dense = ragged.pad(flat)
    assert dense.shape[:2] == ragged.valid.shape == (len(lengths), max(lengths, default=0))
    rows = flat.split([*lengths, tail])
    for row, expected in zip(dense, rows):
        assert torch.equal(row[: len(expected)], expected)
        assert not row[len(expected) :].any()
    back = ragged.flatten(dense)
    assert torch.equal(back[: sum(lengths)], flat[: sum(lengths)])
    assert not back[sum(lengths) :].any()
    assert ragged.sample.tolist() == [i for i, n in enumerate([*lengths, tail]) for _ in range(n)]
    assert ragged.position.tolist() == [p for n in [*lengths, tail] for p in range(n)]


def test_gradients_pass_through_both_ways():
    ragged = Ragged(torch.tensor([2, 0, 3]))
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: ragged.flatten(ragged.pad(x).sin()), x)
