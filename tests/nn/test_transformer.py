import pytest
import torch

from sciformer import nn
from tests.errors import refuses
from tests.nn.parity import CLOSE, assert_close, copy_block, shake


@pytest.mark.parametrize("score", ["scaled_dot", "additive", "content", "general", "dot"])
def test_without_positions_the_encoder_is_equivariant_and_the_pool_invariant(score):
    encoder = shake(nn.Encoder(16, 2, 4, score=score)).double().eval()
    x, valid = torch.randn(3, 8, 16).double(), torch.rand(3, 8) > 0.3
    order = torch.randperm(8)
    y = encoder(x, valid)
    torch.testing.assert_close(encoder(x[:, order], valid[:, order]), y[:, order])
    pool = nn.MeanPool()
    torch.testing.assert_close(pool(encoder(x[:, order], valid[:, order]), valid[:, order]), pool(y, valid))
    ordered = shake(nn.Encoder(16, 2, 4, score=score, position=nn.Sinusoidal(16))).double().eval()
    assert not torch.allclose(ordered(x[:, order]), ordered(x)[:, order])


@pytest.mark.parametrize("position", [None, nn.Learned(16, 9), nn.Rotary(4), nn.RelativeBias(4, 3)])
@pytest.mark.parametrize("score", ["scaled_dot", "additive", "location"])
def test_the_decoder_does_not_see_the_future(position, score):
    decoder = shake(nn.Decoder(16, 2, 4, position=position, score=score)).double().eval()
    x = torch.randn(2, 9, 16).double()
    y = decoder(x)
    for i in range(8):
        changed = torch.cat([x[:, : i + 1], torch.randn(2, 8 - i, 16).double()], 1)
        torch.testing.assert_close(decoder(changed)[:, : i + 1], y[:, : i + 1])
        assert not torch.allclose(decoder(changed)[:, i + 1], y[:, i + 1])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_parity_with_a_whole_torch_transformer(dtype, norm_position, activation):
    pre = norm_position == "pre"
    theirs = torch.nn.Transformer(16, 4, 2, 2, 40, 0.0, activation, batch_first=True, norm_first=pre, dtype=dtype)
    if not pre:  # torch adds a last norm to both orders; the paper's post-norm has none
        theirs.encoder.norm = theirs.decoder.norm = None
    shake(theirs)
    options = {"norm_position": norm_position, "activation": activation, "mlp_ratio": 2.5}
    ours = nn.EncoderDecoder(nn.Encoder(16, 2, 4, **options), nn.Decoder(16, 2, 4, cross=True, **options)).to(dtype)
    for mine, layers in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        for block, layer in zip(mine.blocks, layers.layers):
            copy_block(block, layer)
        if pre:
            mine.norm.load_state_dict(layers.norm.state_dict())
    source, target = torch.randn(2, 7, 16, dtype=dtype), torch.randn(2, 5, 16, dtype=dtype)
    valid = torch.tensor([[1] * 7, [1] * 4 + [0] * 3]).bool()
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=dtype)
    expected = theirs(source, target, tgt_mask=causal, src_key_padding_mask=~valid, memory_key_padding_mask=~valid)
    assert_close(ours(source, target, valid), expected)


def test_packed_cross_attention_equals_padded():
    model = shake(nn.EncoderDecoder(nn.Encoder(16, 1, 4), nn.Decoder(16, 2, 4, cross=True))).double().eval()
    source, target = nn.Ragged(torch.tensor([4, 0, 6])), nn.Ragged(torch.tensor([3, 2, 5]))
    s, t = torch.randn(10, 16).double(), torch.randn(10, 16).double()
    watch = nn.Watch()
    padded = model(source.pad(s), target.pad(t), source.valid, target.valid, watch=watch)
    torch.testing.assert_close(model(s, t, source, target), target.flatten(padded))
    assert list(watch.attention) == [
        "encoder.blocks.0.attention", "decoder.blocks.0.attention", "decoder.blocks.0.cross",
        "decoder.blocks.1.attention", "decoder.blocks.1.cross",
    ]  # fmt: skip
    assert watch.attention["decoder.blocks.1.cross"].shape == (3, 4, 5, 6)
    assert not watch.attention["decoder.blocks.1.cross"][1].any()  # its source is empty
    mixed = model.decoder(target.pad(t), target.valid, memory=model.encoder(s, source), memory_valid=source)
    torch.testing.assert_close(mixed, padded)


@pytest.mark.parametrize("capacity", [None, 9, 15])
@pytest.mark.parametrize("chunks", [[1] * 9, [4, 1, 1, 3], [9]])
@pytest.mark.parametrize(
    "options",
    [
        {"position": nn.Rotary(4), "kv_heads": 2},
        {"position": nn.Learned(16, 15), "score": "additive"},
        {"position": nn.RelativeBias(4, 3), "pattern": nn.Window(3), "kv_heads": 1},
        {"position": nn.Sinusoidal(16), "cross": True, "memory_dim": 6},
        {"position": nn.Rotary(4), "turn_values": True},
        *({"score": score, "kv_heads": 2} for score in nn.SCORES),
    ],
    ids=["rotary", "learned", "window", "cross", "turned values", *nn.SCORES],
)
@torch.no_grad()
def test_cached_decoding_equals_uncached(capacity, chunks, options):
    decoder = shake(nn.Decoder(16, 2, 4, **options)).double().eval()
    x = torch.randn(2, 9, 16).double()
    memory = {}
    if options.get("cross"):
        memory = {"memory": torch.randn(2, 5, 6).double(), "memory_valid": torch.rand(2, 5) > 0.3}
    cache = decoder.cache(capacity)
    parts = [decoder(piece, cache=cache, **memory) for piece in x.split(chunks, 1)]
    torch.testing.assert_close(torch.cat(parts, 1), decoder(x, **memory), atol=1e-12, rtol=1e-12)


@torch.no_grad()
def test_a_fixed_cache_stays_where_it_is_and_says_when_it_is_full():
    decoder = nn.Decoder(16, 1, 4).eval()
    cache = decoder.cache(4)
    decoder(torch.randn(2, 1, 16), cache=cache)
    place = cache.blocks[0].keys.data_ptr()
    decoder(torch.randn(2, 3, 16), cache=cache)
    cache.reorder(torch.tensor([1, 0]))
    assert cache.blocks[0].keys.data_ptr() == place
    with refuses("4 tokens", 5, hint="cache()"):
        decoder(torch.randn(2, 1, 16), cache=cache)


def test_pair_bias_is_learned_through_every_block():
    encoder = nn.Encoder(16, 2, 4).double()
    x, bias = torch.randn(2, 5, 16).double(), torch.randn(2, 4, 5, 5).double().requires_grad_()
    encoder(x, bias=bias).square().sum().backward()
    assert (bias.grad != 0).all()
    shut = torch.zeros(1, 1, 5, 5).double()
    shut[..., 2] = -torch.inf  # nobody sees token 2
    changed = x.clone()
    changed[:, 2] = 7.0
    seen = [i for i in range(5) if i != 2]
    torch.testing.assert_close(encoder(changed, bias=shut)[:, seen], encoder(x, bias=shut)[:, seen])


def test_what_the_bias_says_about_padding_changes_nothing():
    encoder = shake(nn.Encoder(16, 2, 4, position=nn.RelativeBias(4, 2))).double()
    x, valid = torch.randn(2, 5, 16).double(), torch.tensor([[1] * 5, [1, 1, 0, 0, 0]]).bool()
    bias = torch.randn(2, 4, 5, 5).double()
    pairs = valid[:, None, :, None] & valid[:, None, None, :]
    poisoned = bias.masked_fill(~pairs, torch.nan).requires_grad_()
    found = encoder(x, valid, bias=poisoned)
    torch.testing.assert_close(found, encoder(x, valid, bias=bias))
    found.square().sum().backward()
    assert poisoned.grad.isfinite().all()


def test_published_sizes_are_counted_without_memory():
    with torch.device("meta"):
        base = nn.Encoder(768, 12, 12)  # the blocks of BERT-base and ViT-B/16
        small = nn.Decoder(768, 12, 12, bias=False)  # of GPT-2, as nanoGPT counts it without biases
    count = [sum(parameter.numel() for parameter in trunk.parameters()) for trunk in (base, small)]
    assert count == [12 * (4 * 768**2 + 8 * 768**2 + 13 * 768) + 2 * 768, 12 * (12 * 768**2 + 2 * 768) + 768]


def test_initial_weights_are_gpt2s():
    encoder = nn.Encoder(256, 8, 4)
    block = encoder.blocks[0]
    assert block.attention.qkv.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert block.mlp.down.weight.std().item() == pytest.approx(0.02 / 4, rel=0.02)
    assert not block.mlp.up.bias.any()
