"""A run of ours, written for `transformers`, computes the same there."""

import errno
import json

import pytest

from sciformer.interop import export_model, import_model
from sciformer.recipe import Recipe
from sciformer.run import train
from sciformer.training.weights import load_weights
from tests.domains.text.foreign import CORPUS, TEXTS
from tests.domains.text.interop.theirs import difference, inputs, texts_of, transformers
from tests.errors import refuses
from tests.interop.shaken import shaken_run
from tests.models.sections import model_keys

BERT = {"kind": "encoder", "norm_position": "post", "embedding_norm": True, "readout_layer": True}
GPT = {"kind": "decoder"}
LLAMA = {"kind": "decoder", "norm": "rms", "position": "rotary", "activation": "swiglu", "bias": False}
NEOX = {"kind": "decoder", "position": "rotary", "parallel_residual": True}
SUBWORDS = {"vocabulary": 300, "begin": True, "end": True}
RUNS = {
    "bert": (BERT, {"unit": "wordpiece", **SUBWORDS}, "masked"),
    "bert, untied": (BERT | {"activation": "gelu_tanh"}, {"unit": "words", "bias": True, "tie": False}, "masked"),
    "bert without biases": (BERT | {"bias": False, "norm_epsilon": 0.1}, {"unit": "bpe", **SUBWORDS}, "masked"),
    "encoder alone": (BERT | {"readout_layer": False, "activation": "relu"}, {"begin": True, "end": True}, "masked"),
    "gpt of characters": (GPT, {}, "next_token"),
    "gpt of bytes without biases": (GPT | {"bias": False, "activation": "gelu_tanh"}, {"unit": "bytes"}, "next_token"),
    "gpt of words, untied": (GPT | {"mlp_ratio": 1.5}, {"unit": "words", "tie": False}, "next_token"),
    "llama": (LLAMA, {"unit": "bpe", **SUBWORDS}, "next_token"),
    "llama with biases": (
        LLAMA | {"bias": True, "kv_heads": 1, "norm_epsilon": 0.1},
        {"unit": "unigram"},
        "next_token",
    ),
    "neox": (NEOX | {"rotary_share": 0.5}, {"unit": "bpe", **SUBWORDS}, "next_token"),
    "neox, in turn": (NEOX | {"parallel_residual": False, "rotary_base": 100.0}, {"tie": False}, "next_token"),
    "neox without biases": (NEOX | {"bias": False, "activation": "gelu_tanh"}, {}, "next_token"),
    "llama with wide heads": (LLAMA | {"head_dim": 8, "rotary_base": 100.0}, {"tie": False}, "next_token"),
}

AUTO = {"BertModel": "AutoModel", "BertForMaskedLM": "AutoModelForMaskedLM"}


def made(folder, model, tokens, objective):
    (folder / "text.txt").write_text("\n".join(CORPUS * 3))
    data = {"kind": "text", "files": [str(folder / "text.txt")], "documents": "line"}
    text, network = {"kind": "text", "context": 40, **tokens}, {"dim": 16, "depth": 2, "heads": 4, **model}
    return shaken_run(folder, data=data, tokens=text, model=model_keys(**network), objective={"kind": objective})


@pytest.mark.parametrize("name", RUNS)
def test_the_same_numbers_there_and_back(name, tmp_path):
    run = made(tmp_path, *RUNS[name])
    notes = export_model(run, tmp_path / "out")
    kind = json.loads((tmp_path / "out" / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "out").eval()
    assert bool(notes) == (name == "encoder alone") == (kind == "BertModel")
    assert difference(run, theirs) < 1e-5
    auto = getattr(transformers, AUTO.get(kind, "AutoModelForCausalLM"))
    assert type(auto.from_pretrained(tmp_path / "out")).__name__ == kind
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours = texts_of(inputs(run))
    assert tokenizer(TEXTS)["input_ids"] == ours
    tokens = run.assembly.tokens["tokens"]
    assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in ours] == [tokens.decode(ids) for ids in ours]
    again = import_model(tmp_path / "out", tmp_path / "again")
    before, after = (load_weights(one.folder.model)[0] for one in (run, again))
    assert before.keys() <= after.keys()
    assert all(after[key].equal(before[key]) for key in before)
    assert all(not after[key].any() for key in after if key not in before)  # biases that were not there


@pytest.mark.parametrize(("name", "kind"), [("text/bert", "BertForMaskedLM"), ("text/gpt-char", "GPT2LMHeadModel")])
def test_shipped_recipes_have_a_class_there(name, kind, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(CORPUS * 9))
    tiny = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "tokens.context": 16, "train.steps": 1}
    tiny |= {"data.files": [str(tmp_path / "text.txt")], "data.split.valid": 0.3, "train.device": "cpu"}
    run = train(Recipe.load(name, tiny), tmp_path / "run", show=False, report=False)
    assert export_model(run, tmp_path / "out") == []
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "out").eval()
    assert difference(run, theirs, ["the cat sat", "a dog"]) < 1e-5


REFUSED = {
    "model.norm_position: pre": (BERT | {"norm_position": "pre"}, {}, "masked"),
    "model.embedding_norm: false": (BERT | {"embedding_norm": False}, {}, "masked"),
    "model.pool: class_token": (BERT | {"pool": "class_token"}, {}, "masked"),
    "tokens.scale: true": (BERT, {"scale": True}, "masked"),
    "model.position: sinusoidal": (GPT | {"position": "sinusoidal"}, {}, "next_token"),
    "model.position: learned": (NEOX | {"position": "learned"}, {}, "next_token"),
    "model.kv_heads: 2": (GPT | {"kv_heads": 2}, {}, "next_token"),
    "model.window: 3": (LLAMA | {"window": 3}, {}, "next_token"),
    "model.qk_norm: rms": (LLAMA | {"qk_norm": "rms"}, {}, "next_token"),
    "model.norm: layer": (LLAMA | {"norm": "layer"}, {}, "next_token"),
    "model.trunk: lstm": (GPT | {"trunk": "lstm"}, {}, "next_token"),
}


@pytest.mark.parametrize("pair", REFUSED)
def test_the_key_in_the_way_is_named(pair, tmp_path):
    run = made(tmp_path, *REFUSED[pair])
    with refuses(f"`{pair}`", key=pair.partition(":")[0]):
        export_model(run, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "text.txt"]


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_nothing_is_lost_by_an_export(tmp_path, monkeypatch):
    run, out = made(tmp_path, *RUNS["gpt of characters"]), tmp_path / "deep" / "out"
    with refuses(key="model.kind", hint="--format huggingface"):
        export_model(run, out, "onnx")
    export_model(run, out)
    names = sorted(path.name for path in out.iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    with refuses("config.json", file=out, hint="--overwrite"):
        export_model(run, out)
    (out / "config.json").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr("sciformer.interop.export.save", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export_model(run, out, overwrite=True)
    for name in ("interop.export.save", "files.atomic.sync"):  # a folder by itself would speak of a run
        with monkeypatch.context() as patch, refuses("No space left on device", out, file=out, hint="--out"):
            patch.setattr(f"sciformer.{name}", full)
            export_model(run, out, overwrite=True)
    assert (out / "config.json").read_text() == "old"
    export_model(run, out, overwrite=True)
    assert json.loads((out / "config.json").read_text())["model_type"] == "gpt2"
    (out / "thesis.tex").write_text("mine")
    with refuses("thesis.tex", file=out, hint="--out"):
        export_model(run, out, overwrite=True)
    with refuses(file=out / "thesis.tex", hint="--out"):
        export_model(run, out / "thesis.tex", overwrite=True)
    assert [path.name for path in out.parent.iterdir()] == ["out"]
