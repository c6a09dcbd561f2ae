"""A run of ours, written for `transformers`, computes the same there."""

import json

import pytest
import torch

from sciformer.data.batch import View
from sciformer.errors import UserError
from sciformer.interop import export_model, import_model
from sciformer.recipe import Recipe
from sciformer.run import train
from sciformer.train.weights import load_weights

from ..nn.parity import shake
from .theirs import CORPUS, difference, inputs, transformers

BERT = {"kind": "encoder", "order": "post", "embedding_norm": True, "readout_layer": True}
GPT = {"kind": "decoder"}
LLAMA = {"kind": "decoder", "norm": "rms", "position": "rotary", "activation": "swiglu", "bias": False}
SUBWORDS = {"vocabulary": 300, "begin": True, "end": True}
RUNS = {
    "bert": (BERT, {"unit": "wordpiece", **SUBWORDS}, "masked"),
    "bert with bias, untied": (BERT | {"activation": "gelu_tanh"}, {"unit": "words", "bias": True, "tie": False}, "masked"),
    "bert without biases": (BERT | {"bias": False, "norm_epsilon": 0.1}, {"unit": "bpe", **SUBWORDS}, "masked"),
    "encoder alone": (BERT | {"readout_layer": False, "activation": "relu"}, {"begin": True, "end": True}, "masked"),
    "gpt of characters": (GPT, {}, "next_token"),
    "gpt of bytes without biases": (GPT | {"bias": False, "activation": "gelu_tanh"}, {"unit": "bytes"}, "next_token"),
    "gpt of words, untied": (GPT | {"ratio": 1.5}, {"unit": "words", "tie": False}, "next_token"),
    "llama": (LLAMA, {"unit": "bpe", **SUBWORDS}, "next_token"),
    "llama with biases": (LLAMA | {"bias": True, "groups": 1, "norm_epsilon": 0.1}, {"unit": "unigram"}, "next_token"),
    "llama with wide heads": (LLAMA | {"head_dim": 8, "rotary_base": 100.0}, {"tie": False}, "next_token"),
}


def made(folder, model, tokens, objective, **changes):
    """A run of one step, its weights then shaken."""
    path = folder / "text.txt"
    path.write_text("\n".join(CORPUS * 3))
    recipe = Recipe.of(
        {
            "data": {"kind": "text", "files": [str(path)], "documents": "line"},
            "tokens": {"kind": "text", "context": 40, **tokens},
            "model": {"dim": 16, "depth": 2, "heads": 4, **model},
            "objective": {"kind": objective},
            "train": {"steps": 1, "batch": 4, "device": "cpu"},
        },
        changes,
    )
    run = train(recipe, folder / "run", show=False, report=False)
    shake(run.model)
    weights = {name: tensor.detach() for name, tensor in run.model.named_parameters()}
    from sciformer.train.weights import save_weights

    save_weights(run.folder.model, weights, {"step": 1, "scores": {}})
    return run


@pytest.mark.parametrize("name", RUNS)
def test_the_same_numbers_there(name, tmp_path):
    run = made(tmp_path, *RUNS[name])
    notes = export_model(run, tmp_path / "out")
    kind = json.loads((tmp_path / "out" / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "out").eval()
    assert bool(notes) == (name == "encoder alone") == (kind == "BertModel")
    assert difference(run, theirs) < 1e-5
    auto = "AutoModel" if kind == "BertModel" else f"AutoModel{kind[kind.index('For'):]}" if "For" in kind else "AutoModelForCausalLM"
    assert type(getattr(transformers, auto).from_pretrained(tmp_path / "out")).__name__ == kind
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    view = inputs(run)
    from .theirs import TEXTS

    ours = [ids[:n].tolist() for ids, n in zip(view.columns["ids"], view.valid.sum(1))]
    assert tokenizer(TEXTS)["input_ids"] == ours
    tokens = run.assembly.tokens["tokens"]
    assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in ours] == [tokens.decode(ids) for ids in ours]


@pytest.mark.parametrize("name", RUNS)
def test_there_and_back(name, tmp_path):
    run = made(tmp_path, *RUNS[name])
    export_model(run, tmp_path / "out")
    again = import_model(tmp_path / "out", tmp_path / "again")
    before, after = (load_weights(one.folder.model)[0] for one in (run, again))
    assert {key for key in before if key not in after} == set()
    assert all(after[key].equal(before[key]) for key in before)
    assert all(not after[key].any() for key in after if key not in before)  # biases that were not there
