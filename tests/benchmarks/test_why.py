"""The benchmark of memory: it chooses by validation, its gradients and pronouns are what they say, it draws."""

import gc
import json

import pytest

import why
from tests.benchmarks.test_results import KEYS


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Everything at once, as small as it can be."""
    folder = tmp_path_factory.mktemp("why")
    words = f"--tiny --jobs 0 --lags 2,4 --seeds 0,1 --rates 3e-3,1e-2 --device cpu --out {folder}/out"
    words += f" --results {folder}/rows.json --pictures {folder}/pictures"
    gc.collect()
    gc.freeze()  # garbage is searched for after each of these runs; not in what other tests left, which takes longest
    why.main(words.split())
    return folder, {row["id"]: row for row in json.loads((folder / "rows.json").read_text())}


def test_all_rows_are_there(tiny):
    _, rows = tiny
    wanted = {f"memory.{model}.{lag}.accuracy" for model in why.MODELS["recall"] for lag in (2, 4)}
    wanted |= {f"pronoun.{model}.accuracy" for model in why.MODELS["pronouns"]}
    wanted |= {f"pronoun.{model}.{distance}.accuracy" for model in why.MODELS["pronouns"] for distance in (0, 3, 6)}
    assert set(rows) == wanted
    for row in rows.values():
        assert row.keys() >= KEYS
        assert row["seeds"] == (1 if row["id"].startswith("memory") else 2)
        assert 0 <= row["value"] <= 1
    assert rows["memory.rnn.2.accuracy"]["chance"] == 0.125
    assert rows["memory.rnn.4.accuracy"]["gradient_before"] < rows["memory.rnn.2.accuracy"]["gradient_before"] < 1


def test_the_rate_is_chosen_by_validation(tiny):
    folder, rows = tiny
    for name in ("rnn", "transformer"):
        runs = [json.loads(path.read_text()) for path in (folder / "out").glob(f"recall-{name}-4-*.json")]
        best = min(runs, key=lambda one: one["valid"]["loss"])
        row = rows[f"memory.{name}.4.accuracy"]
        assert (row["rate"], row["value"]) == (best["rate"], pytest.approx(best["test"], abs=1e-5))
        assert len(row["grid"]) == len(runs) == 2
    later = [path.name for path in (folder / "out").glob("pronouns-*-1.json")]
    assert len(later) == 3  # the other seed, at the best rate alone


def test_what_is_done_is_not_done_again(tiny, capsys):
    folder, rows = tiny
    words = f"recall --tiny --jobs 0 --lags 2,4 --seeds 0,1 --rates 3e-3,1e-2 --device cpu --out {folder}/out"
    why.main(f"{words} --results {folder}/again.json --pictures {folder}/pictures".split())
    said = capsys.readouterr().out
    assert "recall-rnn-2" not in said
    again = {row["id"]: row["value"] for row in json.loads((folder / "again.json").read_text())}
    assert again == {name: row["value"] for name, row in rows.items() if name.startswith("memory")}
