"""The weights of a model: parameters and buffers out and back, the mean of checkpoints, the file with its hash."""

import pytest
import torch
from torch import nn

from sciformer.training import checkpoint
from sciformer.training.distributed import place
from sciformer.training.weights import load_into, load_weights, mean_weights, named_tensors, save_weights
from tests.errors import refuses


class Tied(nn.Module):
    """An embedding that is also the last layer, buffers that last and one that does not."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.last = nn.Linear(3, 5, bias=False)
        self.last.weight = self.embedding.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def test_parameters_and_lasting_buffers_tied_ones_once():
    model = Tied()
    assert set(named_tensors(model)) == {
        *("embedding.weight", "norm.weight", "norm.bias"),
        *("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"),
    }


def test_out_and_back(tmp_path):
    model, twin = Tied(), Tied()
    for _ in range(3):
        model.norm(torch.randn(8, 3))
    save_weights(tmp_path / "model", named_tensors(model), {"step": 7})
    weights, about = load_weights(tmp_path / "model")
    assert about == {"step": 7}
    load_into(twin, weights, place, "a file")
    assert twin.last.weight is twin.embedding.weight
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, twin.state_dict()[name]), name
    assert int(twin.norm.num_batches_tracked) == 3


def test_weights_that_do_not_fit_are_named(tmp_path):
    model = Tied()
    weights = dict(named_tensors(model))
    with refuses("odd", "a file", file=tmp_path):
        load_into(model, {**weights, "odd": torch.zeros(1)}, place, "a file", tmp_path)
    with refuses("norm.bias"):
        load_into(model, {**weights, "norm.bias": torch.zeros(4)}, place, "a file")


def fill(folder, steps, average):
    made = {}
    for step in steps:
        torch.manual_seed(step)
        weights = {"a": torch.randn(3, 2), "count": torch.tensor(step)}
        averaged = {"a": torch.randn(3, 2)} if average else {}
        checkpoint.save(folder, step, {"weights": weights, "average": averaged}, {}, keep=10)
        made[step] = averaged.get("a", weights["a"])
    return made


@pytest.mark.parametrize("average", [False, True])
def test_the_mean_of_checkpoints_is_the_naive_one(tmp_path, average):
    made = fill(tmp_path, [2, 4, 6, 8], average)
    found, used = mean_weights(tmp_path, 3, pytest.fail)
    assert used == [4, 6, 8]
    torch.testing.assert_close(found["a"], torch.stack([made[step] for step in used]).mean(0))
    assert found["a"].dtype == torch.float32
    assert found["count"].dtype == torch.int64
    assert int(found["count"]) == 6
    assert mean_weights(tmp_path, 99, pytest.fail)[1] == [2, 4, 6, 8]


def test_a_damaged_checkpoint_is_left_out_of_the_mean(tmp_path):
    made = fill(tmp_path, [2, 4], False)
    (tmp_path / "step-0000004" / "weights.safetensors").write_bytes(b"x")
    said = []
    found, used = mean_weights(tmp_path, 2, said.append)
    assert used == [2]
    assert torch.equal(found["a"], made[2])
    assert "step-0000004 cannot be used" in said[0]
    (tmp_path / "step-0000002" / "weights.safetensors").unlink()
    with refuses(file=tmp_path):
        mean_weights(tmp_path, 2, said.append)


def test_a_file_of_a_newer_library(tmp_path, monkeypatch):
    from sciformer.training import weights

    monkeypatch.setattr(weights, "FORMAT", 3)
    save_weights(tmp_path / "model", {"a": torch.zeros(2)}, {})
    monkeypatch.undo()
    with refuses("format 3", file=tmp_path / "model" / "weights.safetensors"):
        load_weights(tmp_path / "model")
    with refuses("weights.safetensors", file=tmp_path / "nowhere"):
        load_weights(tmp_path / "nowhere")
