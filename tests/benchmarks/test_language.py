"""The benchmark of language models asks for every token once, with as much before it as there can be."""

import json
import math

import numpy as np
import pytest
import torch

import language
from ngram import texts_of
from sciformer.data.batch import StreamView
from sciformer.recipe import Recipe
from sciformer.run import train

CHANCE = np.random.default_rng(0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    for part, lines in (("train", 60), ("valid", 9), ("test", 12)):
        words = [" ".join(f"w{i}" for i in CHANCE.integers(12, size=7)) for _ in range(lines)]
        (folder / f"{part}.txt").write_text("\n".join(words) + "\n")
    return folder


def trained(data, model, folder):
    changes = language.files(data) | language.TINY | {"train.device": "cpu"}
    return train(Recipe.load(f"text/wikitext-{model}", changes), folder, show=False, report=False)


def test_windows_that_slide(data, tmp_path):
    run = trained(data, "gpt", tmp_path / "run")
    (ids,) = texts_of(run.data(), "test")
    assert len(ids) == 12 * 8
    context = run.recipe.tokens.context
    found = {stride: language.slid(run, ids, stride, 3) for stride in (1.0, 0.5, 1 / context)}
    assert {len(losses) for losses in found.values()} == {95}
    with torch.no_grad():
        for place in (0, 9, 15, 16, 40, 94):  # moved by one token, each has a whole window before it
            view = StreamView({"ids": torch.as_tensor(ids[max(0, place - context + 1) : place + 1])[None]}, None)
            logits = run.model.readout(run.model.decode(view)[0, -1])
            expected = -logits.log_softmax(-1)[ids[place + 1]]
            assert found[1 / context][place] == pytest.approx(float(expected), abs=1e-4)
    ends = run.evaluate("test").scores["loss"]  # end to end; the last window here begins earlier
    assert found[1.0][:80].sum() + found[1.0][80:].sum() == pytest.approx(95 * ends, rel=0.05)
    assert language.perplexity(run, "test", 1.0) == pytest.approx(math.exp(found[1.0].mean()))


def test_reading_without_an_end(data, tmp_path):
    run = trained(data, "lstm", tmp_path / "run")
    (ids,) = texts_of(run.data(), "test")
    with torch.no_grad():
        hidden = run.model.decode(StreamView({"ids": torch.as_tensor(ids[:-1])[None]}, None))[0]
        expected = run.model.readout.loss(hidden, {"ids": torch.as_tensor(ids[1:])}).numpy()
        np.testing.assert_allclose(language.carried(run, ids, chunk=10), expected, atol=1e-4)
    assert language.perplexity(run, "test") == pytest.approx(math.exp(expected.mean()), rel=1e-4)


def test_rows(data, tmp_path, capsys):
    words = f"gpt lstm ngram --tiny --jobs 0 --seeds 0,1 --device cpu --data {data} --out {tmp_path}/out"
    language.main([*words.split(), "--results", str(tmp_path / "rows.json")])
    rows = {row["id"]: row for row in json.loads((tmp_path / "rows.json").read_text())}
    assert set(rows) == {f"wikitext2.{model}.perplexity" for model in ("gpt", "lstm", "ngram")}
    for row in rows.values():
        assert row["better"] == "lower"
        assert row["anchor"] == 65.8
        assert row["seeds"] == (1 if "ngram" in row["id"] else 2)
        assert 5 < row["value"] < 40  # twelve words
    assert rows["wikitext2.ngram.perplexity"]["order"] == 5
    assert not list((tmp_path / "out" / "runs").iterdir())


def test_tuning_never_sees_the_test_part(data, tmp_path, capsys):
    words = f"tune --tiny --jobs 0 --device cpu --data {data} --out {tmp_path} --configurations gpt-384-path"
    language.main([*words.split(), "--set", "train.steps=2", "--results", str(tmp_path / "rows.json")])
    assert "tune-gpt-384-path-0" in capsys.readouterr().out
    assert not (tmp_path / "rows.json").exists()
    kept = json.loads((tmp_path / "tune-gpt-384-path-0.json").read_text())
    assert "valid" in kept
    assert not any("test" in key for key in kept)
