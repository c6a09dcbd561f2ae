import pytest
import torch
from torch import nn

from sciformer.nn import Cell, LastPool, Ragged, Recurrent, RecurrentDecoder, Sinusoidal, Watch
from sciformer.nn.trunks.recurrent import LAYERS, step
from tests.errors import refuses
from tests.nn.parity import CLOSE, assert_close, shake


@torch.no_grad()
def copy_layers(ours, theirs):
    for i, layer in enumerate(ours.layers):
        for suffix, way in zip(("", "_reverse"), layer):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(way, f"{name}_l0").copy_(getattr(theirs, f"{name}_l{i}{suffix}"))


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("depth", [1, 3])
def test_parity_with_torch(kind, both, depth, dtype):
    theirs = shake(LAYERS[kind](6, 5, depth, batch_first=True, bidirectional=both, dtype=dtype))
    ours = Recurrent(6, depth, kind, hidden=5, bidirectional=both).to(dtype)
    copy_layers(ours, theirs)
    x, lengths = torch.randn(3, 7, 6, dtype=dtype), torch.tensor([7, 4, 1])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    expected, last = theirs(packed)
    expected = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)[0]
    valid = torch.arange(7) < lengths[:, None]
    found = ours(x, valid)
    assert_close(found, expected)
    # Many to one: the last state of the top layer, of both directions.
    state = last[0] if kind == "lstm" else last
    ends = torch.cat([state[-2], state[-1]], -1) if both else state[-1]
    assert_close(LastPool(bidirectional=both)(found, valid), ends)


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("kind", LAYERS)
def test_the_equations_are_what_the_fast_kernels_compute(kind, dtype):
    theirs = shake(LAYERS[kind](6, 5, batch_first=True, dtype=dtype))
    weights = [theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0, theirs.bias_hh_l0]
    cell = Cell(kind, 6, 5).to(dtype)
    cell.weights = nn.ParameterList(weights)
    x = torch.randn(3, 7, 6, dtype=dtype)
    state, outputs = cell.start(x[:, 0]), []
    for i in range(7):
        assert all(map(torch.equal, cell(x[:, i], state), step(kind, weights, x[:, i], state)))
        state = cell(x[:, i], state)
        outputs.append(state[0])
    assert_close(torch.stack(outputs, 1), theirs(x)[0])


@pytest.mark.parametrize("kind", LAYERS)
def test_holes_are_skipped_not_read(kind):
    trunk = shake(Recurrent(6, 2, kind, bidirectional=True)).double()
    x, valid = torch.randn(1, 8, 6).double(), torch.tensor([[0, 1, 1, 0, 1, 0, 0, 1]]).bool()
    found = trunk(x, valid)
    torch.testing.assert_close(found[valid], trunk(x[valid][None])[0])
    torch.testing.assert_close(LastPool(True)(found, valid), LastPool(True)(trunk(x[valid][None])))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("score", [None, "additive", "dot"])
def test_decoding_step_by_step_equals_the_whole(kind, score):
    decoder = shake(RecurrentDecoder(6, 2, kind, score=score, memory_dim=4)).double().eval()
    x, memory = torch.randn(2, 5, 6).double(), torch.randn(2, 7, 4).double()
    whole = decoder(x, memory=memory)
    state = decoder.cache()
    parts = [decoder(x[:, i : i + 1], memory=memory, cache=state) for i in range(5)]
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    whole.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in decoder.parameters())


@pytest.mark.parametrize("score", [None, "additive", "dot"])
def test_a_reordered_cache_goes_on_with_the_chosen_samples(score):
    decoder = shake(RecurrentDecoder(6, 2, "lstm", score=score)).double().eval()
    x, memory, index = torch.randn(3, 5, 6).double(), torch.randn(3, 7, 6).double(), torch.tensor([2, 0, 2, 1])
    valid = torch.rand(3, 7) > 0.3
    state = decoder.cache()
    decoder(x[:, :4], memory=memory, memory_valid=valid, cache=state)
    state.reorder(index)
    last = decoder(x[index, 4:], memory=memory[index], memory_valid=valid[index], cache=state)
    torch.testing.assert_close(last, decoder(x[index], memory=memory[index], memory_valid=valid[index])[:, 4:])


@pytest.mark.parametrize("kind", LAYERS)
def test_reading_step_by_step_equals_the_whole(kind):
    trunk = shake(Recurrent(6, 2, kind, position=Sinusoidal(6))).double().eval()
    x, index = torch.randn(3, 7, 6).double(), torch.tensor([1, 1, 0])
    state = trunk.cache()
    parts = [trunk(x[:, :3], cache=state), trunk(x[:, 3:6], cache=state)]
    torch.testing.assert_close(torch.cat(parts, 1), trunk(x)[:, :6])
    state.reorder(index)
    torch.testing.assert_close(trunk(x[index, 6:], cache=state), trunk(x[index])[:, 6:])
    with refuses("bidirectional"):
        Recurrent(6, bidirectional=True)(x.float(), cache=state)
    with refuses("valid"):
        trunk(x, torch.ones(3, 7, dtype=torch.bool), cache=trunk.cache())


def test_additive_decoder_is_bahdanaus():
    decoder = shake(RecurrentDecoder(6, kind="gru")).double()
    x, memory = torch.randn(1, 3, 6).double(), torch.randn(1, 4, 6).double()
    state = torch.tanh(decoder.begin(memory.mean(1)))
    score, expected = decoder.score, []
    for i in range(3):
        e = [
            score.vector[0, 0, 0] @ torch.tanh(state[0] @ score.query_weight[0] + m @ score.key_weight[0])
            for m in memory[0]
        ]
        context = (torch.stack(e).softmax(0)[:, None] * memory[0]).sum(0)[None]
        (state,) = decoder.cells[0](torch.cat([x[:, i], context], -1), (state,))
        expected.append(torch.tanh(decoder.out(torch.cat([state, context], -1))))
    torch.testing.assert_close(decoder(x, memory=memory), torch.stack(expected, 1))


def test_one_to_many_feeds_itself():
    decoder = shake(RecurrentDecoder(6, kind="lstm", score=None, memory_dim=3)).double().eval()
    start, fed, state = torch.randn(2, 3).double(), [torch.randn(2, 1, 6).double()], decoder.cache()
    for _ in range(5):
        fed.append(decoder(fed[-1], start=start, cache=state))
    x, y = torch.cat(fed[:-1], 1), torch.cat(fed[1:], 1)
    torch.testing.assert_close(decoder(x, start=start), y)
    assert not torch.allclose(decoder(x, start=start + 1), y)


def test_layouts_of_the_decoder_agree():
    decoder = shake(RecurrentDecoder(6)).double().eval()
    target, source = Ragged(torch.tensor([3, 0, 2])), Ragged(torch.tensor([2, 4, 0]))
    x, memory = torch.randn(5, 6).double(), torch.randn(6, 6).double()
    packed = decoder(x, target, memory=memory, memory_valid=source)
    padded = decoder(target.pad(x), target.valid, memory=source.pad(memory), memory_valid=source.valid)
    torch.testing.assert_close(packed, target.flatten(padded))
    assert packed.isfinite().all()
    assert decoder(torch.zeros(2, 0, 6).double(), memory=torch.zeros(2, 3, 6).double()).shape == (2, 0, 6)


def test_watching_a_decoder_without_attention():
    watch = Watch()
    RecurrentDecoder(6, score=None)(torch.randn(1, 3, 6), watch=watch)
    assert watch.attention == {}
    assert watch.hidden["output"].shape == (1, 3, 6)
