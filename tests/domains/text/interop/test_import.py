"""Folders of others: what is read, what is left out, and what is refused by its name."""

import json
import pickle

import pytest
import safetensors.torch
import torch

from sciformer.errors import UserError
from sciformer.interop import import_model
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.domains.text.foreign import CORPUS, TEXTS
from tests.domains.text.interop.theirs import difference, imported, inputs, make, rewrite, save, transformers
from tests.errors import refuses

BERT, GPT2, LLAMA = ("Bert", "ForMaskedLM"), ("GPT2", "LMHeadModel"), ("Llama", "ForCausalLM")
SCALED = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}


def folder(tmp_path, kind=GPT2, **changes):
    return save(tmp_path / "theirs", *make(*kind, **changes))


def refused(path, *mentions, **fields):
    with refuses(*mentions, **fields):
        import_model(path, path.parent / "refused")


def reweigh(path, change):
    file = path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    safetensors.torch.save_file(change(tensors), file, metadata={"format": "pt"})


REFUSED = [
    (GPT2, {"model_type": "t5"}, ["`model_type`", "'t5'"]),
    (GPT2, {"activation_function": "mish"}, ["`activation_function`", "gelu or gelu_new ", "mish"]),
    (GPT2, {"scale_attn_by_inverse_layer_idx": True}, ["`scale_attn_by_inverse_layer_idx`", "false", "true"]),
    (GPT2, {"n_embd": "16"}, ["`n_embd`", "int", "'16'"]),
    (GPT2, {"n_embd": ...}, ["`n_embd`"]),
    (BERT, {"hidden_size": 0}, ["`hidden_size`", "1", "0"]),
    (GPT2, {"n_layer": 3}, ["h.2.attn.c_attn.weight"]),
    (GPT2, {"n_layer": 1}, ["h.1."]),
    (GPT2, {"vocab_size": 999}, ["999", "`vocab_size`"]),
    (GPT2, {"sparse_attention": {"blocks": 3}}, ['`sparse_attention: {"blocks": 3}`']),
    (BERT, {"position_embedding_type": "relative_key"}, ["`position_embedding_type`", "absolute", "relative_key"]),
    (BERT, {"is_decoder": True}, ["`is_decoder`", "false", "true"]),
    (LLAMA, {"rope_parameters": SCALED}, ["`rope_parameters`", "default", "linear"]),
    (LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, ["`rope_scaling`", "dynamic"]),
    (LLAMA, {"hidden_act": "gelu"}, ["`hidden_act`", "silu or swish", "gelu"]),
    (LLAMA, {"num_key_value_heads": 2}, ["`layers.0.self_attn.k_proj.weight`", "8 rows", "16"]),
    (LLAMA, {"quantization_config": {"bits": 4}}, ["`quantization_config: "]),
]


@pytest.mark.parametrize(("kind", "changes", "mentions"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_said_is_refused_by_name(kind, changes, mentions, tmp_path):
    path = folder(tmp_path, kind)
    rewrite(path / "config.json", **changes)
    refused(path, *mentions, file=path / "config.json")
    assert [one.name for one in tmp_path.iterdir()] == ["theirs"]


def test_keys_that_are_off_or_concern_others_are_let_pass(tmp_path):
    path = folder(tmp_path)
    rewrite(path / "config.json", sparse_attention=None, moe=False, temperature=0.7, summary_type="mean")
    assert import_model(path, tmp_path / "run").recipe.model.dim == 16


def test_heads_and_buffers_are_left_out_and_said(tmp_path):
    model, *others = make("Bert", "ForMaskedLM")
    path, said = save(tmp_path / "theirs", model, *others), []
    more = {"bert.pooler.dense.weight": torch.ones(16, 16), "bert.embeddings.position_ids": torch.arange(24)}
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}  # of the first BERT

    def change(tensors):
        for new, name in old.items():
            tensors = {key.replace(new, name): tensor for key, tensor in tensors.items()}
        return tensors | more

    reweigh(path, change)
    run = import_model(path, tmp_path / "run", log=said.append)
    assert difference(run, model) < 1e-5
    assert any("pooler.dense.weight" in note for note in said)
    assert run.about["imported"]["notes"] == said
    reweigh(path, lambda tensors: tensors | {"bert.adapter.weight": torch.ones(1)})
    refused(path, " adapter.weight", file=path / "config.json")


def test_a_last_layer_that_should_be_tied_but_is_another(tmp_path):
    path = folder(tmp_path)
    reweigh(path, lambda tensors: tensors | {"lm_head.weight": tensors["transformer.wte.weight"] + 1})
    refused(path, "`tie_word_embeddings: true`", "`lm_head.weight`", "`wte.weight`", file=path / "config.json")


def test_weights_in_several_files_and_in_half_precision(tmp_path):
    model, tokenizer, names = make(*GPT2)
    save(tmp_path / "theirs", model.half(), tokenizer, names, max_shard_size="6KB")
    shards = sorted((tmp_path / "theirs").glob("model-*.safetensors"))
    assert len(shards) > 1
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    assert {weight.dtype for weight in run.model.parameters()} == {torch.float32}
    assert difference(run, model.float()) < 1e-5
    shards[0].unlink()
    refused(tmp_path / "theirs", shards[0].name, file=shards[0])
    index = tmp_path / "theirs" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"wte.weight": "../run/model/weights.safetensors"}}))
    refused(tmp_path / "theirs", "'../run/model/weights.safetensors'", file=index)


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("code of others was run",))


def test_files_of_pytorch_give_weights_or_nothing(tmp_path):
    model, *others = make(*GPT2)
    path = save(tmp_path / "theirs", model, *others)
    (path / "model.safetensors").unlink()
    refused(path, "model.safetensors", "pytorch_model.bin", "config.json", file=path)
    torch.save(model.state_dict(), path / "pytorch_model.bin")
    assert difference(import_model(path, tmp_path / "run"), model) < 1e-5
    torch.save({"wte": Trap()}, path / "pytorch_model.bin")
    refused(path, file=path / "pytorch_model.bin", hint="safetensors")
    with pytest.raises(UserError) as refusal:
        import_model(path, tmp_path / "other")
    assert "weights_only" not in str(refusal.value)  # no advice to open the file without protection
    (path / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(), 2))
    refused(path, file=path / "pytorch_model.bin", hint="safetensors")


def test_folders_without_all_files(tmp_path):
    path = folder(tmp_path)
    (path / "tokenizer.json").rename(path / "vocab.json")
    refused(path, "tokenizer.json", "vocab.json", file=path, hint="save_pretrained")
    (path / "tokenizer.json").write_text("{}")
    refused(path, "tokenizer.json")
    (path / "modules.json").write_text('[{"type": "Dense"}]')
    refused(path, "`type`", "`path`", file=path / "modules.json")
    (path / "modules.json").write_text('[{"type": "Dense", "path": "2_Dense"}]')
    refused(path, "Transformer", "Pooling", "Normalize", "Dense", file=path / "modules.json")
    (path / "config.json").write_text("{")
    refused(path, "JSON", file=path / "config.json", line=1)
    (path / "config.json").unlink()
    refused(path, file=path / "config.json")
    refused(tmp_path / "nowhere", file=tmp_path / "nowhere")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with refuses(file=tmp_path / "run", hint="--run"):
        import_model(path, tmp_path / "run")


@pytest.mark.parametrize(
    ("pooling", "pool"), [({"pooling_mode_mean_tokens": True}, "mean"), ({"pooling_mode": "cls"}, "first")]
)
def test_the_pooling_of_sentence_transformers(pooling, pool, tmp_path):
    model, *others = make("Bert", "Model")
    path, prefix = save(tmp_path / "theirs", model, *others), "sentence_transformers.models."
    names = {"Transformer": "0_Transformer", "Pooling": "1_Pooling"}
    modules = [{"type": prefix + name, "path": place} for name, place in names.items()]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling | {"word_embedding_dimension": 16}))
    run = import_model(path, tmp_path / "run")
    assert run.recipe.model.pool == pool
    view = inputs(run)
    with torch.no_grad():
        found = run.model.pool(run.model.encode(view))
        states = model(view.columns["ids"].long(), attention_mask=view.valid.long()).last_hidden_state
    valid = view.valid[..., None]
    expected = states[:, 0] if pool == "first" else (states * valid).sum(1) / valid.sum(1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    refused(path, "mean", "cls", "max", file=path / "1_Pooling" / "config.json")


def test_an_imported_run_is_a_run(tmp_path):
    path, text = folder(tmp_path, BERT), tmp_path / "lines.txt"
    text.write_text("\n".join(CORPUS * 2))
    run = import_model(path, tmp_path / "run")
    assert Run(tmp_path / "run").evaluate(files=[text]).scores["loss"] > 1
    with refuses(hint="--data.files"):
        run.evaluate()
    with refuses(hint="sciformer finetune"):
        train(run.recipe, tmp_path / "run", show=False)
    with_data = import_model(path, tmp_path / "with", {"data.files": [str(text)], "tokens.context": 20})
    assert with_data.evaluate("valid").scores["loss"] > 1
    assert len(with_data.model.trunk.position.table) == 20
    with refuses("24", "25", key="tokens.context"):
        import_model(path, tmp_path / "longer", {"tokens.context": 25})
    (tmp_path / "labelled.tsv").write_text("\n".join(f"{i % 2}\t{line}" for i, line in enumerate(CORPUS * 4)))
    kinds = {"tokens": {"kind": "text"}, "model": {"kind": "encoder"}, "objective": {"kind": "classify"}}
    settings = {"steps": 2, "batch": 4, "device": "cpu", "freeze": True, "init_from": str(tmp_path / "run")}
    data = {"kind": "lines", "files": [str(tmp_path / "labelled.tsv")], "columns": ["label", "text"]}
    recipe = Recipe.from_dict({"data": data, "train": settings, **kinds})
    tuned = train(recipe, tmp_path / "tuned", show=False, report=False)
    assert (tuned.recipe.tokens.begin, tuned.recipe.model.embedding_norm) == (True, True)
    before, after = (dict(one.model.named_parameters()) for one in (run, tuned))
    trunk = [name for name in before if not name.startswith("readout")]
    assert trunk
    assert all(after[name].equal(before[name]) for name in trunk)


def test_a_vocabulary_padded_beyond_the_tokenizer(tmp_path):
    run, model, tokenizer = imported(tmp_path, *LLAMA, vocab_size=320)
    assert tokenizer.get_vocab_size() < 320
    tokens = run.assembly.tokens["tokens"]
    assert tokens.size == len(tokens.writable) == 320
    assert not tokens.writable[tokenizer.get_vocab_size() :].any()
    assert difference(run, model) < 1e-5


def test_tokens_are_those_of_transformers(tmp_path):
    path = folder(tmp_path, BERT)
    tokens = import_model(path, tmp_path / "run").assembly.tokens["tokens"]
    theirs = transformers.AutoTokenizer.from_pretrained(path)
    assert tokens.specials == {"padding": 0, "unknown": 1, "begin": 2, "end": 3, "mask": 4, "separator": 3}
    for text in (*TEXTS, "", "zebra [MASK] Ünknown"):
        assert tokens.encode(text).tolist() == theirs(text, add_special_tokens=False)["input_ids"]
