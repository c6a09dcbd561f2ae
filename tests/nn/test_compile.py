"""torch.compile: one graph, few compilations, and nothing left behind."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

from sciformer import nn

TRUNKS = {
    "full": lambda: nn.Encoder(16, 2, 4, position=nn.Rotary(4)),
    "causal": lambda: nn.Decoder(16, 2, 4, position=nn.Learned(16, 64)),
    "near past": lambda: nn.Decoder(16, 2, 4, pattern=nn.Window(3), kv_heads=2),
    "window": lambda: nn.Encoder(16, 2, 4, pattern=nn.Window(3)),
    "strided": lambda: nn.Encoder(16, 2, 4, pattern=nn.Strided(3)),
    "real time": lambda: nn.Encoder(16, 2, 4, position=nn.Rotary(4, periods=(0.5, 20), heads=4)),
    "without residual": lambda: nn.Encoder(
        16, 2, 4, position=nn.UnpairedSinusoidal(16), norm_position="post", residual=False
    ),
    "modulated": lambda: nn.Encoder(16, 2, 4, position=nn.Modulation(16)),
    "linformer": lambda: nn.Encoder(16, 2, 4, position=nn.Learned(16, 20), compress=3, places=20),
    "conformer": lambda: nn.Conformer(16, 2, 4, position=nn.Rotary(4, share=0.5)),
}


@pytest.mark.parametrize("name", TRUNKS)
@pytest.mark.parametrize("masked", [False, True])
def test_many_lengths_need_few_compilations(name, masked):
    torch._dynamo.reset()
    trunk, counter = TRUNKS[name]().eval(), CompileCounter()
    compiled = torch.compile(trunk, backend=counter, fullgraph=True)
    for n in range(6, 18):
        x, valid = torch.randn(2, n, 16), torch.rand(2, n) > 0.3 if masked else None
        torch.testing.assert_close(compiled(x, valid), trunk(x, valid))
    assert counter.frame_count <= 4


@pytest.mark.parametrize("stack", [nn.Encoder, nn.Conformer])
def test_packed_sequences_trace_when_their_layout_is_made_before(stack):
    torch._dynamo.reset()
    trunk = stack(16, 2, 4, position=nn.Rotary(4), kernel="sdpa").eval()
    ragged = nn.Ragged(torch.tensor([3, 0, 5]), total=10, longest=5)
    x = torch.randn(10, 16)
    compiled = torch.compile(trunk, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, ragged), trunk(x, ragged))


def test_a_fake_pass_leaves_no_fake_mask_behind():
    pattern = nn.Window(2, 11)
    with FakeTensorMode():
        q = torch.zeros(1, 1, 7, 8)
        nn.attend(q, q, q, nn.Sight(pattern), kernel="sdpa")
    q = torch.randn(1, 1, 7, 8)
    assert nn.attend(q, q, q, nn.Sight(pattern), kernel="sdpa").isfinite().all()
    with FakeTensorMode():  # nor does a real one disturb the next fake pass
        q = torch.zeros(1, 1, 7, 8)
        nn.attend(q, q, q, nn.Sight(pattern), kernel="sdpa")
