"""Every verb from the command line on tiny data, one after the other as a newcomer would; and wrong inputs for each."""

import csv
import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

from sciformer.cli.main import main
from tests.training.tiny import go, image_recipe, in_ranks, text_recipe

TEXT = "".join(f"line {n}: the quick brown fox jumps over {n * n} lazy dogs.\n" for n in range(60))
SMALL = ["--model.dim=16", "--model.depth=1", "--model.heads=2", "--train.device=cpu", "--train.batch=4"]
FEW = ["--train.steps=4", "--train.evaluate_every=2", "--train.log_every=1", "--train.warmup=1"]
SIZES = ["--size=8", "--number=8", "--chains=6", "--samples=1"]
LATTICES = [word.replace("--", "--data.") for word in SIZES]


def without_drawing(run):
    """A report for where nobody looks at it."""
    return run.folder.write("report.html", "")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that writes and a run that classifies, without reports."""
    folder = tmp_path_factory.mktemp("runs")
    go(text_recipe(folder), folder / "texts")
    go(image_recipe(folder), folder / "images")
    return folder


def test_from_a_text_of_ones_own_to_a_model_that_writes(told, refused, tmp_path, monkeypatch):
    (tmp_path / "fox.txt").write_text(TEXT)
    assert told("new", "text", "fox.txt") == (
        "wrote fox.yaml\nnext: sciformer check fox.yaml\n      sciformer train fox.yaml\n"
    )
    changes = [*SMALL, *FEW, "--tokens.context", "16"]
    found = told("check", "fox.yaml", *changes)
    assert found.endswith("ready to train\n")
    assert re.search(r"made of +text · text · decoder · next_token", found)

    line = ["train", "fox.yaml", *changes]
    found = told(*line)
    assert re.search(r"^ +valid\s+loss +\d\.\d{4}\s+perplexity +\d", found)
    assert found.endswith("\n      sciformer inspect runs/fox\n")
    assert 'report: runs/fox/report.html\nnext: sciformer generate runs/fox --prompt "..."\n' in found
    assert (tmp_path / "runs/fox/report.html").stat().st_size > 10_000
    assert re.search(r"4 steps \(0\.\d+ passes\) on cpu", told.err)
    assert "step 4: validation loss" in told.err
    assert "done in " in told.err
    before = (tmp_path / "runs/fox/model/weights.safetensors").read_bytes()
    monkeypatch.setattr("sciformer.run.Run.report", without_drawing)
    assert told(*line) == found
    assert told.err.startswith("already complete: 4 steps in runs/fox\n")
    assert (tmp_path / "runs/fox/model/weights.safetensors").read_bytes() == before
    told(*line, "--fresh", "--quiet")
    assert told.err == ""

    scores = told("evaluate", "runs/fox")
    assert scores.startswith("scores on the part valid, ")
    assert "token_accuracy" in scores
    assert told("evaluate", "runs/fox", "fox.txt").startswith("scores on fox.txt, ")
    assert told("report", "runs/fox") == "wrote runs/fox/report.html\n"
    found = told("inspect", "runs/fox", "--samples", "1")
    assert found.splitlines()[0] == "wrote runs/fox/inspect/sample-1.png"
    assert all((tmp_path / line.removeprefix("wrote ")).exists() for line in found.splitlines())

    first = told("generate", "runs/fox", "--prompt", "line 1", "--length", "30", "--seed", "1")
    assert first.startswith("line 1")
    assert len(first) == len("line 1") + 30 + 1
    assert told("generate", "runs/fox", "--prompt", "line 1", "--length", "30", "--seed", "1") == first
    assert told("generate", "runs/fox", "--length", "5", "--temperature", "0", "--top-k", "3", "--top-p", "0.9")
    refusal = refused("generate", "runs/fox", "--prompt", "a", "--out", "b.txt")
    assert "--out" in refusal
    assert "--file" in refusal
    assert not (tmp_path / "b.txt").exists()


def test_from_simulated_lattices_to_answers_as_tables(told, tmp_path, monkeypatch):
    assert told("simulate", "lattices", "new/spins.npz", *SIZES) == "wrote 48 lattices to new/spins.npz\n"
    with np.load("new/spins.npz") as table:
        assert table["image"].shape == (48, 8, 8)
        assert set(table["phase"]) == {"ordered", "disordered"}
    found = told("train", "spins/ising-vit", "--run", "vit", *SMALL, *FEW, *LATTICES, "--data.cache=cache")
    assert re.search(r"test +scan\s+loss +\d", found)
    assert found.endswith("report: vit/report.html\nnext: sciformer predict vit FILES\n      sciformer inspect vit\n")
    monkeypatch.setattr("sciformer.run.Run.report", without_drawing)
    assert told("evaluate", "vit", "--part", "scan").startswith("scores on the part scan, ")
    assert told("predict", "vit", "new/spins.npz") == "wrote 48 predictions to predictions.csv\n"
    with open("predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 48
    assert {"temperature", "score_ordered", "score_disordered", "class"} <= set(rows[0])
    assert told("predict", "vit", "new/spins.npz", "--out", "deep/a.npz") == "wrote 48 predictions to deep/a.npz\n"
    with np.load("deep/a.npz", allow_pickle=False) as found:
        assert found["probabilities"].shape == (48, 2)
        for row, answer, share in zip(rows, found["class"], found["probabilities"]):
            assert row["class"] == answer
            assert float(row["score_ordered"]) + float(row["score_disordered"]) == pytest.approx(share.sum())

    line = ["compare", "spins/ising-vit", "spins/ising-cnn", "--seeds", "2"]
    line += [*SMALL, *FEW, *LATTICES, "--data.cache=cache"]
    found = told(*line)
    assert re.search(r"ising-vit +ising-cnn", found)
    assert "mean ± sample standard deviation over seeds" in found.replace("\n", " ")
    assert "written to runs/compare/comparison.html" in found
    assert "run 4 of 4: runs/compare/ising-cnn/seed-1" in told.err
    kept = json.loads((tmp_path / "runs/compare/comparison.json").read_text())
    assert [len(row["runs"]) for row in kept["rows"]] == [2, 2]
    assert told(*line) == found
    assert told.err.count("already complete") == 4


def test_recipes_and_the_keys_of_one(told, capsys, tmp_path):
    assert "sciformer recipes NAME" in told("recipes").splitlines()[-1]
    assert main(["recipes", "text/gpt-char", "--model.depth", "7"]) == 0
    (tmp_path / "mine.yaml").write_text(capsys.readouterr().out)
    assert re.search(r"depth: 7 +# Number of blocks", (tmp_path / "mine.yaml").read_text())
    assert main(["recipes", "mine.yaml"]) == 0
    assert capsys.readouterr().out == (tmp_path / "mine.yaml").read_text()


PLUGIN = """
from sciformer.recipe.registry import register
from sciformer.domains.text.tokens import Text

@register("tokens", "{name}")
class Own(Text):
    pass
"""


def test_a_plugin_is_named_and_asked_for_again(told, refused, tmp_path, monkeypatch):
    (tmp_path / "fox.txt").write_text(TEXT)
    (tmp_path / "cli_letters.py").write_text(PLUGIN.format(name="cli-letters"))
    plugin = ["--plugin", "cli_letters.py"]
    line = ["text/gpt-char", "--tokens.kind", "cli-letters", "--data.files", "fox.txt", "--tokens.context=16"]
    line += [*SMALL, *FEW]
    assert "cli_letters.py" in told("check", *plugin, *line)  # a plugin does not swallow the recipe behind it
    monkeypatch.setattr("sciformer.run.Run.report", without_drawing)
    told("train", *plugin, *line, "--run", "own", "--quiet")
    assert "--plugin cli_letters.py" in refused("evaluate", "own")
    assert told("evaluate", "own", *plugin).startswith("scores on the part valid")


# Wrong inputs


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("generate {texts} --prompt=", ["prompt"]),
        ("generate {texts} --prompt aΩ", ["'Ω'"]),
        ("generate {texts} --length -3", ["length", "-3"]),
        ("generate {texts} --top-p 7", ["top_p", "7.0"]),
        ("generate {texts} --temperature -1", ["temperature", "-1"]),
        ("generate {images}", ["tokens.kind", "patches"]),
        ("evaluate {texts} --part tests", ["train, valid", "'tests'"]),
        ("evaluate {texts} --part test", ["train, valid", "'test'"]),
        ("evaluate {texts} nothing.txt", ["nothing.txt"]),
        ("predict {texts} {folder}/nothing.txt", ["objective.kind", "next_token", "sciformer generate RUN"]),
        ("predict {images} {folder}/images.npz --rows words", ["--rows", "classify"]),
        ("predict {images} {folder}/images.npz --model.depth 3", ["model.depth", "--map"]),
        ("evaluate {texts} --data.errors replace", ["--data.errors", "files"]),
        ("predict {images} {folder}/lines.txt", ["lines.txt"]),
        ("predict {images} {folder}/nothing.npz", ["nothing.npz", "{folder}"]),
        ("predict {images}", ["FILES"]),
        ("predict {images} {folder}/images.npz --out {folder}/lines.txt/a.csv", ["{folder}/lines.txt", "--out"]),
        (
            "predict {images} {folder}/images.npz --out {folder}/images/a.xlsx",
            [".csv, .h5, .jsonl, .npz, .parquet", "a.xlsx", "{folder}/images/a.csv"],
        ),
        ("inspect {images} --out {folder}/lines.txt", ["{folder}/lines.txt", "--out"]),
        ("inspect {images} --samples 0", ["sample", "0"]),
        ("inspect {images} --part scan", ["train, valid", "'scan'"]),
        ("report {folder}/lines.txt", ["{folder}/lines.txt"]),
        ("report {folder}/images/model/weights.safetensors", ["Its run is {images}."]),
        ("report {folder}", ["{folder}", "Did you mean"]),
        ("train {folder}/lines.txt", ["{folder}/lines.txt", ".yaml"]),
        ("train spins/ising-vit --run {folder}/lines.txt", ["{folder}/lines.txt", "Not a directory"]),
        ("train {folder}/images --run {folder}/images --train.batch 3", ["train.batch: 4 -> 3"]),
        ("simulate lattices {folder}/lines.txt/a.npz", ["{folder}/lines.txt", "--out"]),
    ],
)
def test_wrong_inputs_are_answered(runs, refused, line, mentions):
    names = {"folder": runs, "texts": runs / "texts", "images": runs / "images"}
    text = refused(*(word.format(**names) for word in line.split(" ")))
    assert [mention for mention in mentions if mention.format(**names) not in text] == []


def test_a_run_without_its_model_is_answered(runs, refused, tmp_path):
    go(image_recipe(tmp_path), tmp_path / "run", stop_after=1)
    (tmp_path / "run/model/weights.safetensors").unlink(missing_ok=True)
    (tmp_path / "run/model/weights.pt").write_bytes(b"")
    for line in ("evaluate run", "predict run images.npz", "inspect run"):
        text = refused(*line.split())
        assert "weights.safetensors" in text
        assert "run/model" in text
        assert "weights.pt" in text


def test_places_that_may_not_be_written(runs, refused, tmp_path):
    (tmp_path / "a.csv").mkdir()
    text = refused("predict", str(runs / "images"), str(runs / "images.npz"), "--out", "a.csv")
    assert "'a.csv'" in text
    assert "a.csv/NAME.csv" in text
    (tmp_path / "b.npz").mkdir()
    assert "b.npz" in refused("simulate", "lattices", "b.npz", *SIZES)


def test_a_recipe_with_problems_fails_the_check(capsys, tmp_path):
    (tmp_path / "fox.txt").write_text(TEXT)
    assert main(["check", "text/gpt-char", "--data.files", "fox.txt", "--model.dim", "30", *SMALL[1:]]) == 0
    assert main(["check", "text/gpt-char"]) == 2
    found = capsys.readouterr().out.replace(" \n", " ")
    assert "problem: the data: " in found
    assert "--data.files" in found
    assert found.splitlines()[-1].startswith("1 problem")


def test_of_two_ranks_only_the_first_speaks(tmp_path, monkeypatch):
    (tmp_path / "fox.txt").write_text(TEXT)
    monkeypatch.setattr("sciformer.run.Run.report", without_drawing)
    line = ["train", "text/gpt-char", "--run", "run", "--data.files", "fox.txt", "--tokens.context=16", *SMALL, *FEW]

    def work():
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            status = main(line)
        return json.dumps([status, out.getvalue(), err.getvalue()])

    first, second = map(json.loads, in_ranks(work, tmp_path))
    assert second == [0, "", ""]
    assert first[0] == 0
    assert "next: sciformer generate run" in first[1]
    assert first[2].count("done in ") == 1
