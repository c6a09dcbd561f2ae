"""How a training is told: plain lines, a live bar, TensorBoard where it is installed."""

import io
import sys
import types

import pytest
from rich.console import Console

from sciformer.train import progress
from sciformer.train.progress import Board, ProgressReporter, duration

RECORD = {"step": 5, "loss": 1.23456, "norm": 0.5, "learning_rate": 0.1, "epoch": 0.5, "tokens_per_s": 12345.6}


def test_plain_lines(monkeypatch):
    monkeypatch.setattr(progress, "MIN_SECONDS_BETWEEN_LINES", 100.0)
    file = io.StringIO()
    teller = ProgressReporter(file=file)
    assert not teller.live
    teller.begin(10, 0, "tokens")
    teller.last = -1000.0
    for number in range(1, 11):
        teller.step(number, RECORD)
    teller.scores(10, {"loss": 1.5, "accuracy": 0.25}, best=True)
    teller.log("[bold] is no markup [/]")
    teller.end()
    first, last, *rest = file.getvalue().splitlines()
    assert first.startswith("step 1/10  loss 1.2346  12,346 tokens/s  gradient 0.50  ")
    assert last.startswith("step 10/10 ")  # a line now and then, and the last one
    assert last.endswith("0 s left")
    assert rest == ["step 10: validation loss 1.5000  accuracy 0.2500  (best so far)", "[bold] is no markup [/]"]


def test_a_live_bar():
    file = io.StringIO()
    teller = ProgressReporter(file=file)
    teller.console = Console(file=file, force_terminal=True, width=120, highlight=False)
    teller.live = True
    teller.begin(10, 4, "tokens")
    teller.step(5, RECORD)
    teller.log("a word")
    teller.bar.refresh()
    teller.end()
    teller.end()
    text = file.getvalue()
    assert "5/10" in text
    assert "loss 1.2346  12,346 tokens/s" in text
    assert "a word\n" in text


def test_silence(capsys):
    teller = ProgressReporter(show=False)
    teller.begin(10, 0, "tokens")
    teller.step(1, RECORD)
    teller.scores(1, {"loss": 1.0}, best=False)
    teller.log("nothing")
    teller.end()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s"), (3600, "1 h 0 min"), (12000, "3 h 20 min")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


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
