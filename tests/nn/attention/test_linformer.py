import pytest
import torch

from sciformer.nn import Attention, Encoder, Learned, Ragged, Rotary, Sight, Watch, grid
from sciformer.nn.attention.linformer import Compress
from tests.nn.parity import shake


def test_the_equation():
    layer = shake(Attention(8, 2, compress=3, places=6)).double()
    x, at = torch.randn(2, 6, 8).double(), torch.arange(6)[None, :, None]
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in layer.qkv(x).chunk(3, -1))
    keys, values = layer.compress.table.table.chunk(2, 1)
    k, v = (torch.einsum("jm,bhje->bhme", mixture, part) for mixture, part in ((keys, k), (values, v)))
    weights = (q @ k.mT / 2).softmax(-1)
    expected = layer.out((weights @ v).transpose(1, 2).flatten(2))
    watch = Watch()
    torch.testing.assert_close(layer(x, sight=Sight(at=at), watch=watch), expected)
    torch.testing.assert_close(watch.attention["attention"], weights)
    assert watch.attention["attention"].shape == (2, 2, 6, 3)


def test_all_places_and_a_mixture_for_each_are_full_attention():
    layer = shake(Attention(8, 2)).double()
    own = Attention(8, 2, compress=5, places=5).double()
    own.load_state_dict(layer.state_dict(), strict=False)
    own.compress.table.table.data = torch.eye(5).double().repeat(1, 2)
    x = torch.randn(3, 5, 8).double()
    torch.testing.assert_close(own(x, sight=Sight(at=torch.arange(5)[None, :, None])), layer(x))


@pytest.mark.parametrize("position", [None, "learned", "rotary"])
@pytest.mark.parametrize("lead", [0, 1])
def test_layouts_and_company_change_nothing(lead, position):
    made = {None: None, "learned": Learned(8, (3, 4)), "rotary": Rotary(4, axes=2)}[position]
    trunk = shake(Encoder(8, 2, 2, position=made, compress=4, places=(3, 4), lead=lead)).double().eval()
    ragged = Ragged(torch.tensor([12, 0, 5, 1]))
    x, at = torch.randn(18, 8).double(), torch.cat([grid((3, 4)), grid((3, 4))[:5], grid((3, 4))[7:8]])
    padded = trunk(ragged.pad(x), ragged.valid, at=ragged.pad(at))
    torch.testing.assert_close(trunk(x, ragged, at=at), ragged.flatten(padded))
    torch.testing.assert_close(trunk(x[None, :12], at=at[:12]), padded[:1])
    torch.testing.assert_close(trunk(x[None, 12:17], at=at[12:17]), padded[2:3, :5])
    poisoned = ragged.pad(x).masked_fill(~ragged.valid[..., None], torch.nan)
    torch.testing.assert_close(trunk(poisoned, ragged.valid, at=ragged.pad(at)), padded)
    tail = Ragged(ragged.lengths, total=20)
    longer = trunk(torch.cat([x, torch.full((2, 8), torch.nan)]), tail, at=torch.cat([at, at[:2]]))
    torch.testing.assert_close(longer[:18], trunk(x, ragged, at=at))
    padded.square().sum().backward()
    assert not [name for name, weight in trunk.named_parameters() if weight.grad is None or not weight.grad.any()]


def test_a_finer_grid_gives_mixtures_of_the_same_scale():
    mixing = Compress(3, (4, 4))
    mixing.table.table.data = torch.randn(1, 1, 6).expand(4, 4, 6).flatten(0, 1)
    k = torch.randn(1, 2, 1, 5)
    few, many = (
        mixing(k.expand(-1, -1, len(at), -1), k.expand(-1, -1, len(at), -1), at[None], None)
        for at in (grid((4, 4)), grid((8, 8), (4, 4)))
    )
    torch.testing.assert_close(few, many)
