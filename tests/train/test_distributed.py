"""One process and two: the same losses, scores and weights; what ranks do together."""

import pytest
import torch

from sciformer.errors import UserError
from sciformer.train.distributed import Ranks, find_device, full_tensor, patience, place
from tests.errors import refuses
from tests.train.tiny import assert_near, go, image_recipe, in_ranks, left, text_recipe

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
CPU = torch.device("cpu")


@pytest.mark.parametrize("shard", ["none", "full"])
@pytest.mark.parametrize("micro", [None, 1])
@pytest.mark.parametrize("make", [text_recipe, image_recipe])
def test_two_ranks_are_one_process(tmp_path, make, micro, shard):
    """DDP and FSDP2, an odd batch, ragged lengths, micro-batches, averaged weights: curves and scores within 1e-5."""
    recipe = make(tmp_path, model__dropout=0.0, train__batch=5, train__steps=20, train__ema=0.9)
    recipe = recipe.change({"train.log_every": 1, "train.epsilon": 1e-6, "train.schedule": "constant"})
    reference = left(go(recipe, tmp_path / "one"))
    changed = recipe.change({"train.shard": shard, "train.micro_batch": micro})
    in_ranks(lambda: go(changed, tmp_path / "two"), tmp_path)
    assert_near(tmp_path / "two", reference, 1e-5)
    tensors = left(tmp_path / "two")[0]
    assert tensors.keys() == reference[0].keys()
    for name, tensor in reference[0].items():
        torch.testing.assert_close(tensors[name], tensor, rtol=1e-3, atol=1e-4)


def test_what_ranks_do_together(tmp_path):
    def work():
        with Ranks(CPU) as ranks:
            refused = []
            try:
                ranks.lead(lambda: (_ for _ in ()).throw(UserError("this is that", hint="So.", key="a.b", line=3)))
            except UserError as error:
                refused = [str(error), error.key, error.line]
            turns = ranks.in_turn(lambda: "made" if ranks.first else "found")
            return [
                *(ranks.first, ranks.sum(1.5, ranks.rank), ranks.gather(ranks.rank), ranks.agree(ranks.rank)),
                *(refused, turns),
            ]

    same = [[3.0, 1.0], [0, 1], 0, ["this is that. So.", "a.b", 3]]
    assert in_ranks(work, tmp_path) == [str([True, *same, "made"]), str([False, *same, "found"])]


def test_one_process_does_the_obvious():
    with Ranks(CPU) as ranks:
        found = (ranks.first, ranks.world, ranks.sum(1, 2.5), ranks.gather("x"), ranks.agree("y"))
        assert found == (True, 1, [1, 2.5], ["x"], "y")
        assert ranks.in_turn(lambda: 3) == 3
        step = torch.nn.Linear(2, 2)
        assert ranks.wrap(step, "none") is ranks.wrap(step, "full") is step
        assert full_tensor(step.weight).requires_grad is False
        assert place(torch.ones(2, 2), step.weight).equal(torch.ones(2, 2))


def test_more_ranks_than_samples(tmp_path):
    recipe = text_recipe(tmp_path, train__batch=1)
    with pytest.raises(AssertionError, match=r"train\.batch.*\b2\b"):
        in_ranks(lambda: go(recipe, tmp_path / "run"), tmp_path)


def test_devices():
    assert find_device("cpu") == CPU
    assert find_device("auto").type in ("cpu", "cuda", "mps")
    with refuses("'gpu'", "auto, cpu", key="train.device"):
        find_device("gpu")
    if not torch.cuda.is_available():
        with refuses("cuda:1", key="train.device"):
            find_device("cuda:1")
    if not torch.backends.mps.is_available():
        with refuses("mps", key="train.device"):
            find_device("mps")


def test_patience_is_a_number(monkeypatch):
    for odd in ("soon", "-1", "nan", "inf"):
        monkeypatch.setenv("SCIFORMER_PATIENCE", odd)
        with refuses("SCIFORMER_PATIENCE"):
            patience()
