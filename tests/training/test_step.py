"""One update: the same gradient however the batch is divided; clipping; what is not finite."""

import math

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.data.batch import Batch, Stream
from sciformer.data.loader import Fetch
from sciformer.data.sampler import BatchSampler
from sciformer.objectives.base import Step
from sciformer.training.config import Train
from sciformer.training.distributed import Ranks
from sciformer.training.optimizers import make_optimizer
from sciformer.training.step import OptimizerStep, bad_samples, matmul_precision, working_precision
from tests.errors import refuses
from tests.training.tiny import text_recipe

CPU = torch.device("cpu")


def opened(folder, dropout=0.0):
    """The assembly of a small model, and batches of eight lines of different length by number."""
    assembly = Assembly.open(text_recipe(folder, train__batch=8, model__dropout=dropout))
    train = assembly.dataset("train")
    return assembly, Fetch(train, BatchSampler(len(train), 8, 0), assembly.tokens, assembly.objective)


def updater(folder, double=True, dropout=0.0, **settings):
    """An updater of a small model, and a batch."""
    assembly, batches = opened(folder, dropout)
    batch = batches[0]
    assert len({*batch.stream.lengths}) > 3  # ragged
    step = Step(assembly.network(), assembly.objective)
    step = step.double() if double else step
    settings = Train(batch=8, device="cpu", warmup=0, **settings)
    optimizer = make_optimizer(step, settings, CPU)
    said = []
    return OptimizerStep(step, step, optimizer, settings, Ranks(CPU), 10, 8, said.append), batch


def gradients(found):
    return torch.cat([weight.grad.flatten() for weight in found.weights])


def test_dropout_is_drawn_anew_for_every_seed_step_and_rank(tmp_path):
    def loss(number=0, rank=0, **settings):
        found, batch = updater(tmp_path, dropout=0.5, **settings)
        found.ranks.rank = rank
        return float(found.gradient(batch, number, batch.count))

    assert loss() == loss()
    assert len({loss(), loss(number=1), loss(number=10), loss(rank=1), loss(rank=10), loss(seed=1)}) == 6


def test_the_loss_is_the_mean_over_tokens(tmp_path):
    found, batch = updater(tmp_path)
    loss, outputs = found.step(batch.inputs(), True)
    assert batch.count == int(outputs["count"].sum()) == int(batch.stream.lengths.sum())
    torch.testing.assert_close(found.gradient(batch, 0, batch.count), loss / batch.count)


def test_gradients_are_clipped_to_their_length(tmp_path):
    found, batch = updater(tmp_path, clip_norm=0.0)
    found(batch, 0, batch.count)
    free = gradients(found)
    norm = float(free.norm())
    for clip in (norm / 3, norm * 3):
        found, batch = updater(tmp_path, clip_norm=clip)
        updated = found(batch, 0, batch.count)
        assert updated.read()[1] == pytest.approx(norm)  # told as it was
        torch.testing.assert_close(gradients(found), free * min(1.0, clip / norm), rtol=1e-5, atol=1e-12)


def test_what_is_not_finite_changes_nothing(tmp_path):
    found, batch = updater(tmp_path, double=False)
    before = {name: weight.clone() for name, weight in found.step.state_dict().items()}
    for count in (math.nan, 1e-45):
        updated = found(batch, 0, count)
        assert not math.isfinite(updated.read()[1])
        assert all(torch.equal(before[name], weight) for name, weight in found.step.state_dict().items())
    assert math.isfinite(found(batch, 0, batch.count).read()[1])
    assert not all(torch.equal(before[name], weight) for name, weight in found.step.state_dict().items())


def test_a_batch_that_asks_for_nothing_moves_nothing_but_the_decay(tmp_path):
    """A count of zero: nothing was hidden, or every text has one letter."""
    found, batch = updater(tmp_path, double=False, weight_decay=0.0)
    single = batch.take(np.flatnonzero(batch.stream.lengths == batch.stream.lengths.min())[:1])
    assert found(single, 0, 0.0).read() == (0.0, 0.0)


def test_ranks_that_divide_weights_have_equally_many_pieces(tmp_path):
    found, _ = updater(tmp_path, micro_batch=1)
    found.sharded = True
    assert [len(rows) for rows in found._pieces(3, 3)] == [1, 1, 1]
    assert [len(rows) for rows in found._pieces(2, 3)] == [1, 1, 0]
    found.micro_batch = None
    assert [len(rows) for rows in found._pieces(2, 3)] == [2]


def test_samples_that_are_not_finite_are_named():
    nan, lengths = np.nan, np.array([2, 0, 1, 3])
    stream = Stream({"x": np.array([[1.0, 2], [3, nan], [4, 5], [6, 7], [8, 9], [1, 1]]), "n": np.arange(6)}, lengths)
    samples = {"weight": np.array([1, 1, np.inf, 1]), "name": np.array(list("abcd"))}
    assert bad_samples(Batch({"tokens": stream}, samples, np.array([10, 11, 12, 13]))) == [10, 12]
    assert bad_samples(Batch({"tokens": stream}, {}, np.array([10, 11, 12, 13]))) == [10]
    empty = Stream({"x": np.zeros((0, 2))}, np.array([0, 0]))
    assert bad_samples(Batch({"tokens": empty}, {}, np.arange(2))) == []


def test_precision():
    assert working_precision(Train(), CPU) is None
    assert working_precision(Train(precision="float32"), torch.device("cuda")) is None
    assert working_precision(Train(), torch.device("cuda")) == torch.bfloat16
    with refuses("bfloat16", "cpu", key="train.precision", hint="float32"):
        working_precision(Train(precision="bfloat16"), CPU)
    fewer = Train(precision="tensorfloat32")
    assert working_precision(fewer, torch.device("cuda")) is None
    cases = [(fewer, "cuda", "high"), (fewer, "cpu", "highest"), (Train(), "cuda", "highest")]
    for settings, device, expected in cases:
        with matmul_precision(settings, torch.device(device)):
            assert torch.get_float32_matmul_precision() == expected
        assert torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(KeyError), matmul_precision(fewer, torch.device("cuda")):
        raise KeyError
    assert torch.get_float32_matmul_precision() == "highest"
