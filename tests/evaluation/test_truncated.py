"""How soon an answer is known: samples cut after their first tokens, before anything is scaled."""

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.data.columns import Lists
from sciformer.data.dataset import Dataset
from sciformer.data.source import Memory
from sciformer.domains.lightcurves.tokens import Observations
from sciformer.evaluation.truncated import parse_horizon, rows_of, truncated_scores
from sciformer.recipe import Recipe
from sciformer.run import Run
from tests.errors import refuses
from tests.training.tiny import go


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Texts whose class is told by their fourth letter."""
    folder, rng = tmp_path_factory.mktemp("early"), np.random.default_rng(0)
    lines = ["text\tlabel"]
    for number in range(120):
        letters = rng.choice(list("abc"), 8 if number % 10 else 3)
        if len(letters) > 3:
            letters[3] = "xy"[number % 2]
        lines.append(f"{''.join(letters)}{number:x}\t{number % 2}")
    (folder / "lines.tsv").write_text("\n".join(lines))
    sections = {
        "data": {"kind": "lines", "files": [str(folder / "lines.tsv")], "split": {"valid": 0.2, "test": 0.3}},
        "tokens": {"kind": "text", "context": 12, "unit": "characters"},
        "model": {"kind": "encoder", "dim": 16, "depth": 1, "heads": 2},
        "objective": {"kind": "classify"},
        "train": {"steps": 60, "batch": 32, "warmup": 5, "learning_rate": 0.01, "device": "cpu"},
    }
    return go(Recipe.from_dict(sections), folder / "run").path


def test_scores_rise_when_the_telling_token_is_seen(run):
    found = truncated_scores(Run(run), [0, 2, 3, 100])
    assert [one.distance for one in found] == [0, 2, 3, 100, None]
    assert (found[0].tokens, found[1].tokens) == (1, 3)
    assert found[3].scores == found[4].scores == Run(run).evaluate().scores
    assert found[3].tokens == found[4].tokens > 5
    assert found[2].scores["accuracy"] > found[1].scores["accuracy"]
    assert rows_of(found)[-1]["until"] == "all"


def test_the_verb_prints_a_table_and_draws(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["evaluate", str(run), "--until", "0,3"]) == 0
    text = capsys.readouterr().out
    rows = [line.split()[0] for line in text.splitlines() if line[:1].isdigit() or line.startswith("all")]
    assert rows == ["0", "3", "all"]
    assert (run / "until.png").read_bytes()[:4] == b"\x89PNG"
    other = run.parent / "more.tsv"
    other.write_text("text\tlabel\nabcx\t0\nabcy\t1\n")
    assert main(["evaluate", str(run), str(other), "--until", "2", "--out", str(run.parent / "new" / "p.svg")]) == 0
    assert (run.parent / "new" / "p.svg").exists()
    assert main(["evaluate", str(run), "--until", "2", "--out", "p.txt"]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in ("p.txt", ".svg"))


def test_distances_in_words():
    assert parse_horizon("50,10, 20,10") == [10, 20, 50]
    for wrong in ("", "x", "-1", "1,inf", "nan"):
        with refuses(repr(wrong), key="--until"):
            parse_horizon(wrong)


def test_times_count_from_the_first_and_what_is_given_beside_stays():
    time = Lists(np.array([50000.0, 50003, 50020, 7.0, 9.0]), np.array([3, 2, 0]))
    table = {"time": time, "value": Lists(np.arange(5, dtype=np.float32), time.lengths), "size": np.ones(3)}
    for extra in ((), ("size",)):
        tokens = Observations(kind="observations", extra=extra)
        tokens.fit([table])
        stream = tokens.truncate(tokens.tokenize(table), 3)
        assert (stream.lengths - len(extra)).tolist() == [2, 2, 0]
        own = stream.position >= len(extra)
        assert stream.columns["value"][own].tolist() == [0, 1, 3, 4]
        # what comes later is not felt by what is seen: neither in the level of values nor in the middle of times
        short = {name: Lists(table[name].values[[0, 1, 3, 4]], np.array([2, 2, 0])) for name in ("time", "value")}
        seen = tokens.normalise(stream).columns
        alone = tokens.normalise(tokens.tokenize({**table, **short})).columns
        for name in ("features", "at"):
            np.testing.assert_array_equal(seen[name], alone[name])


def test_lists_of_labels_have_no_beginning():
    with refuses():
        Dataset(Memory({"a": np.zeros(1)}), {}, labels=("tags",), until=3)
