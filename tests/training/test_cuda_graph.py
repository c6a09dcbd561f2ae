"""Whole steps as recordings; what stands for a CUDA graph here repeats its work on the same memory."""

import pytest
import torch

from sciformer.training import cuda_graph as recorded
from sciformer.training.cuda_graph import CudaGraphStep
from tests.training.test_step import opened, updater


@pytest.fixture
def taken(monkeypatch):
    """The works that were recorded."""
    works = []

    def capture(work, pool):
        works.append(work)
        return work

    monkeypatch.setattr(recorded, "capture", capture)
    return works


def pair(folder, **settings):
    """Two updaters of equal models, the second with recordings, and batches of several shapes."""
    plain, _ = updater(folder, double=False, **settings)
    other, _ = updater(folder, double=False, **settings)
    other.step.load_state_dict(plain.step.state_dict())
    other.recorded = CudaGraphStep(other.call, other.weights, torch.enable_grad)
    return plain, other


@pytest.mark.parametrize("settings", [{}, {"packed": True}, {"dropout": 0.2}], ids=["padded", "packed", "dropout"])
def test_the_same_weights_after_the_same_batches(tmp_path, taken, settings):
    plain, other = pair(tmp_path, **settings)
    some = opened(tmp_path)[1]
    order = [0, 1, 0, 2, 1, 0, 0, 2, 1]
    for number, which in enumerate(order):
        batch = some[which]
        expected, found = (one(batch, number, batch.count).read() for one in (plain, other))
        assert found == pytest.approx(expected, rel=1e-6)
    assert len(taken) == len({some[which].stream.lengths.tobytes() for which in order}) == 3  # one for each shape
    for mine, theirs in zip(plain.weights, other.weights):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


def test_a_shape_is_recorded_when_it_comes_again_and_no_more_than_there_is_room_for(tmp_path, taken, monkeypatch):
    monkeypatch.setattr(recorded, "MAX_RECORDED_SHAPES", 1)
    _, other = pair(tmp_path)
    some = opened(tmp_path)[1]
    for number, which in enumerate([0, 1, 1, 0, 1]):
        other(some[which], number, some[which].count)
        assert len(taken) == (number >= 2)


def test_a_weight_that_the_loss_does_not_need_has_no_gradient(tmp_path, taken):
    _, other = pair(tmp_path)
    other.step.model.spare = torch.nn.Parameter(torch.ones(3))
    other.weights.append(other.step.model.spare)
    batch = opened(tmp_path)[1][0]
    for number in range(3):
        other(batch, number, batch.count)
    assert len(taken) == 1
    assert other.step.model.spare.grad is None
    assert other.weights[0].grad is not None


def test_what_cannot_be_recorded_is_told_and_done_otherwise(tmp_path, monkeypatch):
    def capture(work, pool):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(recorded, "capture", capture)
    plain, other = pair(tmp_path)
    monkeypatch.setattr(torch, "compile", lambda module, **options: module)
    said = []
    other.log = said.append
    batch = opened(tmp_path)[1][0]
    for number in range(3):
        expected, found = (one(batch, number, batch.count).read() for one in (plain, other))
        assert found == pytest.approx(expected, rel=1e-6)
    assert other.recorded is None
    (line,) = said
    assert line.endswith("(operation not permitted when stream is capturing)")


def test_shapes_tell_batches_apart(tmp_path):
    batches = opened(tmp_path)[1]
    first, second = (batches[number].inputs("cpu", packed=True) for number in (0, 1))
    assert first.shape() == batches[0].inputs("cpu", packed=True).shape()
    assert first.shape() != second.shape()
    assert first.shape() != batches[0].inputs("cpu").shape()
    again = first.placed(iter([tensor.clone() for tensor in first.tensors()]))
    assert again.shape() == first.shape()
    assert all(torch.equal(a, b) for a, b in zip(first.tensors(), again.tensors()))
