"""One process and two: the same losses, scores and weights; what ranks do together."""

import importlib
import os
import socket

import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.errors import UserError
from sciformer.training.distributed import Ranks, find_device, full_tensor, patience, place
from sciformer.training.engine import Engine
from sciformer.training.folder import Folder
from sciformer.training.progress import ProgressReporter
from sciformer.training.weights import named_tensors
from tests.errors import refuses
from tests.shipped import tiny
from tests.training.tiny import fate, go, in_ranks, start, text_recipe

CPU = torch.device("cpu")


# A recipe of each family of models; those of the first line have batch norms.
NORMED = ["images/lenses-resnet", "jets/lorentznet", "jets/part", "jets/particlenet", "jets/pcnn", "jets/pct"]
NORMED += ["jets/part-v3", "lightcurves/astroconformer"]
PLAIN = ["images/mae", "jets/pfn", "lightcurves/astromer", "lightcurves/cnn", "lightcurves/gru"]
PLAIN += ["spins/ising-vit", "text/gpt-char", "text/recall-rnn", "text/sentiment", "text/seq2seq-lstm", "text/tagging"]
PLAIN += ["text/transformer-tiny"]


def two_steps(assembly, folder, **settings):
    """Losses of the first and the last step of an epoch, a score, and all tensors of the model and their gradients."""
    recipe = assembly.recipe
    assembly.recipe = recipe.change({f"train.{key}": value for key, value in settings.items()})
    torch.manual_seed(0)
    made = Engine(assembly, Folder(folder), Ranks(CPU), ProgressReporter(show=False))
    assembly.recipe = recipe
    for part in made.step.modules():  # no dropout, wherever a recipe has some
        for name in {"p", "dropout", "drops"} & vars(part).keys():
            setattr(part, name, type(getattr(part, name))(0))
    made.step.train()
    losses, gradients = [], {}
    for number in (0, made.order.batches - 1):
        batch = made.fetch[number]
        (count,) = made.ranks.sum(batch.count)
        result = made.updater(batch, number, count)
        losses += made.ranks.sum(result.read()[0])
    weights = {name: full_tensor(value) for name, value in named_tensors(made.step.model).items()}
    for name, weight in made.step.model.named_parameters():
        if weight.grad is not None:
            gradients[name] = full_tensor(weight.grad)
    return [*losses, made.evaluate(*made.evaluated_part()).scores["loss"]], weights, gradients


@pytest.mark.parametrize("name", [*NORMED, *PLAIN])
def test_a_family_does_not_depend_on_ranks_and_micro_batches(name, tmp_path, double):
    """DDP, FSDP2 and micro-batches: losses, scores, gradients, weights, running means. One rank has no sample once."""
    assembly = Assembly.open(tiny(name, tmp_path))
    count = len(assembly.dataset("train"))
    batch = next(size for size in range(4, count) if count % size == 1)
    assembly.recipe = assembly.recipe.change({"train.batch": batch, "train.bucket": False})
    reference = two_steps(assembly, tmp_path)
    importlib.import_module("torch.distributed.fsdp")  # slow, and once is enough

    def work():
        found = {shard: two_steps(assembly, tmp_path, shard=shard) for shard in ("none", "full")}
        torch.save(found, tmp_path / f"rank-{os.environ['RANK']}.pt")

    in_ranks(work, tmp_path)
    first, second = (torch.load(tmp_path / f"rank-{rank}.pt") for rank in (0, 1))
    near = {"rtol": 1e-6, "atol": 1e-6}
    for shard in ("none", "full"):
        torch.testing.assert_close(first[shard], reference, **near)
        torch.testing.assert_close(second[shard], first[shard], rtol=0, atol=0)
    if name in NORMED:
        with refuses("batch norms", key="train.micro_batch"):
            two_steps(assembly, tmp_path, micro_batch=2)
    else:
        torch.testing.assert_close(two_steps(assembly, tmp_path, micro_batch=2), reference, **near)


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


@pytest.mark.parametrize("restarts", ["0", "1"])
def test_ranks_that_cannot_meet_are_reported(tmp_path, restarts):
    """One of two ranks is alone."""
    environment = {"SCIFORMER_PATIENCE": "1", "TORCHELASTIC_RESTART_COUNT": restarts, "GROUP_WORLD_SIZE": "2"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    environment |= {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}

    def work():
        os.environ.update(environment)
        with refuses(2, hint="TORCH_DISABLE_SHARE_RDZV_TCP_STORE" if restarts == "1" else "resumes"):
            Ranks(CPU)

    assert fate(start(work, tmp_path / "answer")) == 0, (tmp_path / "answer").read_text()
