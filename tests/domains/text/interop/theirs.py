"""Small models of `transformers` with random weights, saved as folders, and what they compute."""

import json

import pytest
import torch

from sciformer.data.batch import Batch, StreamView
from sciformer.domains.text.tokens import as_table
from sciformer.interop import import_model
from tests.domains.text.foreign import TEXTS, byte_pairs, wordpiece
from tests.nn.parity import shake

transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}


def roberta_pairs():
    made = byte_pairs(("<s>", "<pad>", "</s>", "<unk>", "<mask>"), ("<s>", "</s>"))
    roles = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    return made, {f"{role}_token": name for role, name in roles.items()}


def gpt2_pairs():
    return byte_pairs(), {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk")}


def llama_pairs():
    return byte_pairs(("<s>", "</s>", "<unk>"), ("<s>",)), {"bos_token": "<s>", "eos_token": "</s>"}


TOKENIZERS = {"Bert": wordpiece, "Roberta": roberta_pairs, "XLMRoberta": roberta_pairs, "GPT2": gpt2_pairs}


def make(kind, head, **changes):
    """A model with random weights, and its tokenizer: make("Bert", "ForMaskedLM", hidden_act="relu")."""
    tokenizer, names = TOKENIZERS.get(kind, llama_pairs)()
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 24}
    sizes |= {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 24} if kind == "GPT2" else SIZES
    sizes = {key: value for key, value in sizes.items() if kind != "GPT2" or not key.startswith("max_")}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 0 if kind == "GPT2" else 2}
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **ids, **changes})
    torch.manual_seed(0)
    model = shake(getattr(transformers, f"{kind}{head}")(config)).eval()
    model.tie_weights()
    return model, tokenizer, names


def save(folder, model, tokenizer, names, **options):
    """As `save_pretrained` writes them."""
    model.save_pretrained(folder, **options)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.save_pretrained(folder)
    return folder


def imported(folder, kind, head, **changes):
    """A model of theirs as a run of ours, itself, and its tokenizer."""
    model, tokenizer, names = make(kind, head, **changes)
    return import_model(save(folder / "theirs", model, tokenizer, names), folder / "run"), model, tokenizer


def rewrite(path, **changes):
    """Give a JSON file other values; ... leaves a key out."""
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))


def inputs(run, texts=TEXTS):
    """Padded texts as a run reads them: (ids, valid)."""
    tokens = run.assembly.tokens["tokens"]
    view = Batch({"tokens": tokens.tokenize(as_table(texts))}).inputs().stream
    assert not view.valid.all()
    return view


def texts_of(view):
    """Ids of each text, without padding."""
    return [ids[:count].tolist() for ids, count in zip(view.columns["ids"], view.valid.sum(1))]


@torch.no_grad()
def written(model, ids, count):
    """The likeliest tokens, one after the other."""
    cache, fresh, found = model.trunk.cache(), ids, []
    for _ in range(count):
        hidden = model.decode(StreamView({"ids": fresh}, None), cache=cache)
        fresh = model.readout(hidden[:, -1]).argmax(-1, keepdim=True)
        found.append(int(fresh))
    return found


@torch.no_grad()
def difference(run, model, texts=TEXTS, double=False):
    """The largest difference of hidden states and of logits, at real tokens."""
    ours, view = run.model, inputs(run, texts)
    if double:
        ours, model = ours.double(), model.double()
    ids = view.columns["ids"].long()
    theirs = model(input_ids=ids, attention_mask=view.valid.long(), output_hidden_states=True)
    hidden = ours.encode(view).x if hasattr(ours, "encode") else ours.decode(view)
    apart = [(hidden - theirs.hidden_states[-1])[view.valid].abs().max()]
    if hasattr(theirs, "logits"):
        apart.append((ours.readout(hidden) - theirs.logits)[view.valid].abs().max())
    return max(float(one) for one in apart)
