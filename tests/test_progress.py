"""Progress of long work: a live bar in a terminal, plain lines now and then elsewhere."""

import io
import sys
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

from sciformer import progress
from sciformer.progress import ProgressBar, ProgressConsole, duration


def test_plain_lines_now_and_then(monkeypatch):
    file = io.StringIO()
    with ProgressBar(2000, console=ProgressConsole(file)) as bar:
        bar.add(1000)
        assert file.getvalue() == ""
        monkeypatch.setattr(progress, "MIN_SECONDS_BETWEEN_LINES", -1.0)
        bar.add(500)
        bar.log("[bold] is no markup [/]")
    first, second = file.getvalue().splitlines()
    assert first.startswith("samples 1,500/2,000  ")
    assert first.endswith("0 s left")
    assert second == "[bold] is no markup [/]"


def test_a_live_bar():
    file = io.StringIO()
    with ProgressBar(10, done=4, keep=True, console=Console(file=file, force_terminal=True, width=120)) as bar:
        bar.update(5, figures="loss 1.2346")
        bar.log("a word")
        bar.bar.refresh()
    text = file.getvalue()
    assert "5/10  loss 1.2346" in text
    assert "a word\n" in text


def test_silence(capsys):
    with ProgressBar(2000, show=False, keep=True) as bar:
        bar.add(2000)
        bar.log("nothing")
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_goes_away_does_not_stop_the_work(tmp_path):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    with ProgressBar(2, keep=True, console=ProgressConsole(Gone())) as bar:
        bar.add(1)
        bar.add(1)
    assert bar.done == 2
    bar.console.file.close()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s"), (3600, "1 h 0 min"), (12000, "3 h 20 min")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_a_line_in_a_notebook_is_replaced_in_place(monkeypatch):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data)

    def display(data, raw, display_id):
        shown.append("first")
        shown.append(data)
        return Handle()

    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(progress, "MIN_SECONDS_BETWEEN_UPDATES", -1.0)
    console = ProgressConsole(io.StringIO())
    console.is_jupyter = True
    with ProgressBar(4, "<step>", keep=True, console=console) as bar:
        bar.add(1)
        bar.add(3)
    assert shown.count("first") == 1
    first, last = shown[1:]
    assert first["text/plain"].startswith("1/4 <step>")
    assert 'value="1.0000"' in last["text/html"]
    assert "&lt;step&gt;" in last["text/html"]
    assert console.file.getvalue() == ""
