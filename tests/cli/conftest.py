"""Command lines that must succeed or be refused, run in a folder of their own."""

import pytest

from sciformer.cli.main import main


@pytest.fixture(autouse=True)
def _elsewhere(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("RANK", raising=False)


@pytest.fixture
def told(capsys):
    """The output of a command line that must succeed; its messages are kept as `told.err`."""

    def run(*words):
        status = main(list(words))
        printed = capsys.readouterr()
        run.err = printed.err
        assert status == 0, printed.err
        assert "\x1b" not in printed.out + printed.err
        assert max(map(len, printed.out.splitlines()), default=0) <= 80, "wider than the terminal"
        return printed.out

    return run


@pytest.fixture
def refused(capsys):
    """The error of a command line that must be refused."""

    def run(*words):
        assert main(list(words)) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("error: ")
        return " ".join(printed.err.removeprefix("error: ").split())

    return run
