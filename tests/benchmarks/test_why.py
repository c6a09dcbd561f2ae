"""The benchmark of memory: it chooses by validation, its gradients and pronouns are what they say, it draws."""

import gc
import json

import numpy as np
import pytest
import torch

import memory
import why
from sciformer.assembly import Assembly
from sciformer.recipe import Recipe


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
        assert row.keys() >= {"value", "unit", "better", "spread", "seeds", "command", "hardware", "versions", "commit"}
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


def test_pictures(tiny, tmp_path):
    folder, rows = tiny
    made = sorted(path.name for path in (folder / "pictures").iterdir())
    assert made == ["memory.png", "pronoun-attention.png", "pronouns.png"]
    again = why.draw(folder / "rows.json", tmp_path)
    assert all(path.read_bytes() == (folder / "pictures" / path.name).read_bytes() for path in again)
    seen = rows["pronoun.transformer.accuracy"]["attention"]
    assert np.array(seen["weights"]).sum(1) == pytest.approx(np.ones(3), abs=2e-3)
    assert [words[3] for words in seen["words"]] == ["dog", "cat", "house"]


def test_what_is_done_is_not_done_again(tiny, capsys):
    folder, rows = tiny
    words = f"recall --tiny --jobs 0 --lags 2,4 --seeds 0,1 --rates 3e-3,1e-2 --device cpu --out {folder}/out"
    why.main(f"{words} --results {folder}/again.json --pictures {folder}/pictures".split())
    said = capsys.readouterr().out
    assert "recall-rnn-2" not in said
    again = {row["id"]: row["value"] for row in json.loads((folder / "again.json").read_text())}
    assert again == {name: row["value"] for name, row in rows.items() if name.startswith("memory")}


def test_the_gradient_against_a_small_step():
    recipe = Recipe.load("text/recall-rnn", {"data.lag": 3, "data.number": 60, "model.dim": 8, "train.device": "cpu"})
    data = Assembly.open(recipe)
    model = data.network().double()
    found = memory.reach(model, data, count=1)
    batch = data.dataset("test").batch(np.arange(1))
    inputs = batch.inputs()
    label = data.objective.classes.index(batch.samples["value"][0])
    x = model.embed(inputs.stream).detach()

    def loss(place, way):
        moved = x.clone()
        moved[0, place] += way
        logits = model.heads["class"](model.pool(memory.Encoded(model.run(moved, inputs.stream), None)))
        return torch.nn.functional.cross_entropy(logits, torch.tensor([label]))

    with torch.no_grad():
        length = []
        for place in (0, -1):
            unit = 1e-5 * torch.eye(8, dtype=torch.float64)
            slope = torch.stack([(loss(place, way) - loss(place, -way)) / 2e-5 for way in unit])
            length.append(slope.norm())
    assert found == pytest.approx(float(length[0] / length[1]), rel=1e-5)
