"""From a run over text to a folder of Hugging Face, which `transformers` loads."""

from __future__ import annotations

from ....errors import UserError
from ....interop.export import Exporter, has_tokens, to_json, write_model
from ....run import Run
from ....train.folder import Folder
from ....train.weights import load_weights
from ..subwords import TOKENIZER_FILE, tokenizers_package
from ..tokens import Text
from .families import BERT, GPT2, LLAMA, Family

EXPORTED_FILES = ("config.json", "model.safetensors", TOKENIZER_FILE, "tokenizer_config.json")
SHARED_TOKEN_NAMES = {"padding": "pad", "unknown": "unk", "mask": "mask"}  # theirs for special tokens, by our roles
ENCODER_TOKEN_NAMES = {**SHARED_TOKEN_NAMES, "begin": "cls", "end": "sep"}
DECODER_TOKEN_NAMES = {**SHARED_TOKEN_NAMES, "begin": "bos", "end": "eos", "separator": "sep"}


def write(run: Run, folder: Folder) -> list[str]:
    """Write the files of a run, and return notes about it."""
    weights, _ = load_weights(run.folder.model)
    (tokens,) = run.assembly.tokens.values()
    assert isinstance(tokens, Text)
    written = nearest_family(run).write(run.recipe, weights)
    names = ENCODER_TOKEN_NAMES if run.recipe.model.kind == "encoder" else DECODER_TOKEN_NAMES
    ids = {f"{theirs}_token_id": tokens.specials.get(role) for role, theirs in names.items()}
    kept = ("pad_token_id", "bos_token_id", "eos_token_id")
    write_model(folder, written.config | {key: ids.get(key) for key in kept}, written.tensors)
    tokens.save(folder.path / TOKENIZER_FILE)
    find = tokenizers_package().Tokenizer.from_file(str(folder.path / TOKENIZER_FILE)).id_to_token
    special = {f"{names[role]}_token": find(number) for role, number in tokens.specials.items() if role in names}
    beside = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": tokens.context, **special}
    folder.write("tokenizer_config.json", to_json(beside))
    return written.notes


def nearest_family(run: Run) -> Family:
    """The nearest family, whose check then names the keys in the way."""
    model = run.recipe.model
    if model.kind == "encoder":
        return BERT
    if model.kind != "decoder":
        raise UserError(
            f"Hugging Face needs `model.kind: encoder` or `decoder`, not `model.kind: {model.kind}`", key="model.kind"
        )
    theirs = {"norm": "rms", "position": "rotary", "activation": "swiglu"}
    likeness = sum(getattr(model, key, None) == value for key, value in theirs.items())
    return LLAMA if likeness >= 2 else GPT2


EXPORTER = Exporter("huggingface", "text", has_tokens(Text), EXPORTED_FILES, write)
