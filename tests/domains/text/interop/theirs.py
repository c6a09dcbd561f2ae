"""Small models of `transformers` with random weights, saved as folders, and what they compute."""

import json

import pytest
import tokenizers
import torch

from sciformer.data.batch import Batch, StreamView
from sciformer.domains.text.tokens import as_table
from tests.nn.parity import shake

transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TEXTS = ["the cat sat on the mat", "a dog", "the dog saw that the cat sat", "on", "a mat and a cat and a dog and a mat"]
CORPUS = [*TEXTS, "cats and dogs sat and saw mats", "that that is is that that is not is not"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}


def wordpiece():
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=60, special_tokens=special, show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return made, {f"{role}_token": name for role, name in names.items()}


def byte_pairs(special=("<|endoftext|>",), frame=()):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    options = {"vocab_size": 300, "special_tokens": list(special), "show_progress": False}
    made.train_from_iterator(CORPUS, tokenizers.trainers.BpeTrainer(initial_alphabet=letters, **options))
    if frame:
        ids = [(name, made.token_to_id(name)) for name in frame]
        single = " ".join([frame[0], "$A", *frame[1:]])
        made.post_processor = tokenizers.processors.TemplateProcessing(single=single, special_tokens=ids)
    return made


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
