"""Copying weights from torch.nn, so that the same numbers can be expected."""

import torch
from torch import nn

CLOSE = {torch.float32: 1e-5, torch.float64: 1e-10}


def assert_close(found, expected):
    tolerance = CLOSE[expected.dtype]
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@torch.no_grad()
def copy_attention(ours, theirs: nn.MultiheadAttention):
    ours.qkv.weight.copy_(theirs.in_proj_weight)
    ours.out.weight.copy_(theirs.out_proj.weight)
    if theirs.in_proj_bias is not None:
        ours.qkv.bias.copy_(theirs.in_proj_bias)
        ours.out.bias.copy_(theirs.out_proj.bias)


@torch.no_grad()
def copy_block(ours, theirs):
    """From nn.TransformerEncoderLayer or nn.TransformerDecoderLayer."""
    copy_attention(ours.attention, theirs.self_attn)
    norms = [ours.attention_norm, ours.mlp_norm]
    if ours.cross is not None:
        copy_attention(ours.cross, theirs.multihead_attn)
        norms.insert(1, ours.cross_norm)
    for i, norm in enumerate(norms):
        norm.load_state_dict(getattr(theirs, f"norm{i + 1}").state_dict())
    ours.mlp.up.load_state_dict(theirs.linear1.state_dict())
    ours.mlp.down.load_state_dict(theirs.linear2.state_dict())


@torch.no_grad()
def shake(module):
    """Every parameter away from the zeros and ones it starts with."""
    for parameter in module.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return module
