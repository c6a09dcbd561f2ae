"""Vector quantisation: nearest codewords, straight-through gradients, and the autoencoder around it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sciformer.models.vector_quantized import VectorQuantized, VectorQuantizer
from sciformer.objectives.base import Step
from sciformer.objectives.reconstruct import Reconstruct
from tests.errors import refuses
from tests.objectives.examples import OBJECTIVES, make, ready, shaken


@pytest.fixture
def quantizer():
    torch.manual_seed(0)
    return VectorQuantizer(12, 4, commitment=0.5)


def test_the_nearest_codeword_is_taken(quantizer):
    z = torch.randn(5, 7, 4)
    found = quantizer(z)
    unit, book = F.normalize(z, dim=-1), F.normalize(quantizer.table.weight, dim=-1)
    nearest = torch.cdist(unit, book.expand(5, -1, -1)).argmin(-1)
    assert torch.equal(found.ids, nearest)
    torch.testing.assert_close(found.x, book[nearest])
    torch.testing.assert_close(quantizer.words(found.ids), book[nearest])


def test_the_gradient_goes_straight_through(quantizer):
    z = F.normalize(torch.randn(6, 4), dim=-1).requires_grad_()
    weight = torch.randn(6, 4)
    (quantizer(z).x * weight).sum().backward()
    direction = torch.autograd.grad((F.normalize(z, dim=-1) * weight).sum(), z)[0]
    torch.testing.assert_close(z.grad, direction)  # as if the codeword were the input itself
    assert quantizer.table.weight.grad is None or not quantizer.table.weight.grad.any()


def test_codewords_move_to_vectors_and_vectors_to_codewords(quantizer):
    z = torch.randn(6, 4, requires_grad=True)
    found = quantizer(z)
    unit, word = F.normalize(z, dim=-1), quantizer.book[found.ids]
    apart = (unit - word).square().sum(-1)
    torch.testing.assert_close(found.loss, 1.5 * apart)
    wanted = torch.autograd.grad(0.5 * (unit - word.detach()).square().sum(), z, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(found.loss.sum(), z, retain_graph=True)[0], wanted)
    book = torch.autograd.grad((unit.detach() - word).square().sum(), quantizer.table.weight, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(found.loss.sum(), quantizer.table.weight)[0], book)


def test_a_missing_code_is_the_mean_of_the_codebook(quantizer):
    torch.testing.assert_close(quantizer.words(torch.tensor([[-1, 3]]))[0, 0], quantizer.book.mean(0))


def used_codes(restart, steps=200):
    """Number of used codewords after training on vectors in a narrow cone around 16 centres."""
    torch.manual_seed(0)
    centres = torch.randn(16, 8) * 0.3 + torch.ones(8)
    quantizer = VectorQuantizer(16, 8, restart=restart)
    optimizer = torch.optim.Adam(quantizer.parameters(), 1e-2)
    for _ in range(steps):
        z = centres[torch.randint(16, (128,))] + 0.01 * torch.randn(128, 8)
        optimizer.zero_grad()
        quantizer(z).loss.sum().backward()
        optimizer.step()
    return len(quantizer.eval()(centres).ids.unique())


def test_unused_codewords_are_restarted():
    assert used_codes(0) <= 4  # most codewords start far from the cone
    assert used_codes(10) >= 15


def test_a_codeword_restarts_at_a_vector_after_some_batches(quantizer):
    quantizer.restart = 2
    z = F.normalize(torch.randn(3, 4), dim=-1)
    before = quantizer.table.weight.detach().clone()
    used = quantizer.eval()(z).ids.unique()
    unused = [code for code in range(12) if code not in used.tolist()]
    assert torch.equal(quantizer.train()(z).ids.unique(), used)
    assert torch.equal(quantizer.table.weight, before)
    assert quantizer.idle[unused].tolist() == [1] * len(unused)
    quantizer(z).loss.sum().backward()  # the second batch without use
    assert torch.equal(quantizer.table.weight[used], before[used])
    assert (torch.cdist(quantizer.table.weight[unused], z).min(1).values < 1e-3).all()
    assert not quantizer.idle.any()
    after = quantizer.table.weight.detach().clone()
    for _ in range(4):
        quantizer.eval()(z)
    assert torch.equal(quantizer.table.weight, after)  # never outside a training


def autoencoder(parts, **keys):
    torch.manual_seed(0)
    section = VectorQuantized(
        **{"kind": "vector_quantized", "dim": 8, "depth": 1, "heads": 2, "codes": 6, "code_dim": 4, **keys}
    )
    return shaken(section.build(parts[0], parts[1]))


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "reconstruct", lambda: Reconstruct(kind="reconstruct"))
    return make("patches", "reconstruct")


def test_loss_of_pixels_and_codes(parts):
    model, batch = autoencoder(parts, decoder_depth=1, restart=0), ready(parts)  # several passes for one gradient
    step = Step(model, parts[1])
    loss, outputs = step(batch.inputs(), True)
    view = batch.inputs().stream
    found = model.reconstruct(view)
    pixels = (model.readout.predict(found.hidden)["patch"] - view.columns["target patch"]).square().mean(-1)
    torch.testing.assert_close(outputs["loss"], (pixels + found.loss).sum(1))
    assert batch.count == outputs["count"].sum() == len(batch) * 8
    loss.backward()
    assert all(weight.grad is not None for weight in step.parameters())
    packed, again = step(batch.inputs(packed=True), True)
    torch.testing.assert_close(packed, loss)
    torch.testing.assert_close(again["loss"], outputs["loss"])


def test_codes_decode_to_the_reconstruction(parts):
    model = autoencoder(parts).eval()
    view = ready(parts).inputs().stream
    with torch.no_grad():
        found = model.reconstruct(view)
        assert torch.equal(model.codes(view), found.ids)
        torch.testing.assert_close(model.decode_codes(found.ids, view), found.hidden)
    assert found.ids.min() >= 0
    assert found.ids.max() < 6


def test_without_depth_a_code_depends_on_its_patch_alone(parts):
    model = autoencoder(parts, depth=0, position="none").eval()
    view = ready(parts).inputs().stream
    before = model.codes(view)
    view.columns["patch"] = view.columns["patch"].clone()
    view.columns["patch"][:, 0] += 5
    assert torch.equal(model.codes(view)[:, 1:], before[:, 1:])
    assert np.array(before.shape).tolist() == [7, 8]


def test_other_trunks_are_refused(parts):
    with refuses("lstm", key="model.trunk"):
        VectorQuantized(kind="vector_quantized", trunk="lstm", dim=8).build(parts[0], parts[1])
