"""From the command line: in, used, and out again."""

import json
from pathlib import Path

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.run import Run
from tests.domains.text.foreign import CORPUS
from tests.domains.text.interop.theirs import difference, make, save, transformers

LINES = CORPUS * 3


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, here, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    (tmp_path / "lines.txt").write_text("\n".join(LINES))


def test_a_decoder(capsys):
    model, *others = make("GPT2", "LMHeadModel")
    save("tiny-gpt", model, *others)
    assert main(["import", "tiny-gpt", "--data.files", "lines.txt", "--data.split.valid", "0.4"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("wrote runs/tiny-gpt: decoder of 2 blocks of width 16, ")
    assert difference(Run("runs/tiny-gpt"), model) < 1e-5
    assert main(["generate", "runs/tiny-gpt", "--prompt", "the", "--length", "5", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.startswith("the")
    for line in ("evaluate runs/tiny-gpt", "evaluate runs/tiny-gpt lines.txt", "inspect runs/tiny-gpt --samples 1"):
        assert main(line.split()) == 0
    assert main(["export", "runs/tiny-gpt", "--out", "back"]) == 0
    assert "wrote back\n" in capsys.readouterr().out
    again = transformers.AutoModelForCausalLM.from_pretrained("back")
    assert all(theirs.equal(ours) for theirs, ours in zip(again.state_dict().values(), model.state_dict().values()))


def test_an_encoder(capsys):
    save("tiny-bert", *make("Bert", "Model"))
    assert main(["import", "tiny-bert", "--run", "runs/bert"]) == 0
    assert "left out: layers of other tasks (pooler." in capsys.readouterr().err
    assert main(["embed", "runs/bert", "lines.txt", "--out", "vectors.npy"]) == 0
    assert np.load("vectors.npy").shape == (len(LINES), 16)
    assert main(["export", "runs/bert", "--out", "back"]) == 0
    assert capsys.readouterr().err.startswith("only the encoder")
    assert json.loads(Path("back/config.json").read_text())["model_type"] == "bert"


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("import", ["SOURCE"]),
        ("import nowhere", ["nowhere"]),
        ("import tiny --run lines.txt/run", ["lines.txt", "--run"]),
        ("import tiny --model.dept 3", ["model.depth?"]),
        ("export runs/tiny", ["--out"]),
        ("export runs/tiny --out lines.txt", ["lines.txt", "--out"]),
        ("export runs/tiny --out o --format onxn", ["huggingface, onnx", "'onxn'"]),
        ("export runs/tiny --out o --format onnx", ["ONNX", "`model.kind: decoder`"]),
        ("train runs/tiny", ["sciformer finetune RECIPE --from runs/tiny --run FOLDER"]),
        ("evaluate runs/tiny", ["--data.files"]),
    ],
)
def test_mistakes(line, mentions, capsys):
    save("tiny", *make("GPT2", "LMHeadModel"))
    if "runs/tiny" in line:
        assert main(["import", "tiny"]) == 0
    capsys.readouterr()
    assert main(line.split()) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert all(mention in said for mention in mentions)
