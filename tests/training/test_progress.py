"""Progress of a training: steps and scores, TensorBoard where it is installed."""

import io
import sys
import types

from sciformer.training.progress import Board, ProgressReporter

RECORD = {"step": 5, "loss": 1.23456, "norm": 0.5, "learning_rate": 0.1, "epoch": 0.5, "tokens_per_s": 12345.6}


def test_steps_and_scores_in_plain_lines():
    file = io.StringIO()
    teller = ProgressReporter(file=file)
    teller.begin(10, 0)
    for number in range(1, 11):
        teller.step(number, RECORD)
    teller.scores(10, {"loss": 1.5, "accuracy": 0.25}, best=True)
    teller.end()
    teller.end()
    first, last, scores = file.getvalue().splitlines()
    assert first.startswith("step 1/10  loss 1.2346  12,346 tokens/s  gradient 0.50  ")
    assert last.startswith("step 10/10 ")  # a line now and then, and the last one
    assert last.endswith("0 s left")
    assert scores == "step 10: validation loss 1.5000  accuracy 0.2500  (best so far)"


def test_tensorboard_is_not_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # import fails
    board = Board(tmp_path / "tensorboard", 3)
    board.add(RECORD)
    board.end()
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_gets_the_numbers_and_forgets_the_future(tmp_path, monkeypatch):
    calls = []

    class Writer:
        def __init__(self, folder, purge_step):
            calls.append((folder, purge_step))

        def add_scalar(self, *arguments):
            calls.append(arguments)

        def close(self):
            calls.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = Board(tmp_path, 4)
    board.add({"step": 5, "loss": 1.5, "left_out": True, "samples": [1]})
    board.end()
    assert calls == [(str(tmp_path), 5), ("loss", 1.5, 5), "closed"]
