"""What differs between training and evaluation, for everything that has a rate."""

import pytest
import torch

from sciformer import nn
from tests.nn.parity import shake

X = torch.randn(4, 6, 16)
RATED = {
    "attention": (lambda p: nn.Attention(16, 4, dropout=p), lambda m: m(X)),
    "attention reference": (lambda p: nn.Attention(16, 4, dropout=p, kernel="reference"), lambda m: m(X)),
    "attention additive": (lambda p: nn.Attention(16, 4, dropout=p, score="additive"), lambda m: m(X)),
    "mlp": (lambda p: nn.MLP(16, 32, dropout=p), lambda m: m(X)),
    "block": (lambda p: nn.Block(16, 4, dropout=p), lambda m: m(X)),
    "drop path": (lambda p: nn.Encoder(16, 1, 4, drop_path=p), lambda m: m(X)),
    "drop path deep": (lambda p: nn.Encoder(16, 3, 4, drop_path=p), lambda m: m(X)),
    "decoder": (lambda p: nn.Decoder(16, 2, 4, dropout=p, cross=True), lambda m: m(X, memory=X)),
    "recurrent": (lambda p: nn.Recurrent(16, 2, dropout=p), lambda m: m(X)),
    "recurrent decoder": (lambda p: nn.RecurrentDecoder(16, 2, dropout=p), lambda m: m(X, memory=X)),
    "recurrent decoder of one layer": (lambda p: nn.RecurrentDecoder(16, dropout=p), lambda m: m(X, memory=X)),
    "convnet": (lambda p: nn.ConvNet(16, 2, dropout=p), lambda m: m(X)),
    "class head": (lambda p: nn.ClassHead(16, 3, dropout=p), lambda m: m(X[:, 0])),
    "tag head": (lambda p: nn.TagHead(16, 3, hidden=8, dropout=p), lambda m: m(X)),
    "value head": (lambda p: nn.ValueHead(16, 3, hidden=8, dropout=p), lambda m: m(X[:, 0]).mean),
}


@pytest.mark.parametrize("name", RATED)
def test_rates_act_in_training_and_nowhere_else(name):
    make, call = RATED[name]
    dropping, plain = shake(make(0.5)), make(0.0)
    plain.load_state_dict(dropping.state_dict())
    expected = call(plain)  # in training, without a rate
    assert torch.equal(call(dropping.eval()), call(dropping))
    torch.testing.assert_close(call(dropping), expected)
    dropping.train()
    assert not torch.equal(call(dropping), call(dropping))


def test_in_a_block_everything_drops():
    """Attention weights, hidden activations and both branches, each by itself."""
    for name in ("attention", "mlp.dropout", "dropout"):
        block = nn.Block(16, 4, dropout=0.5)
        for part in ("attention", "mlp.dropout", "dropout"):
            if part != name:
                module = block.get_submodule(part)
                module.dropout = 0.0
                module.p = 0.0
        assert not torch.equal(block(X), block(X)), name


def test_drop_path_grows_with_depth():
    def rates(depth):
        return [block.drop_path.p for block in nn.Encoder(16, depth, 4, drop_path=0.4).blocks]

    assert rates(3) == pytest.approx([0, 0.2, 0.4])
    assert rates(1) == [0.4]


def test_drop_path_knows_empty_sequences():
    encoder = nn.Encoder(16, 2, 4, drop_path=0.2)
    assert encoder(torch.randn(2, 16), nn.Ragged([0] * 10 + [2])).isfinite().all()
