"""Export of a text run as a Hugging Face folder for `transformers`."""

from __future__ import annotations

from ....errors import UserError
from ....interop.export import Exporter, has_tokens, to_json, write_model
from ....run import Run
from ....training.folder import Folder
from ....training.weights import load_weights
from ..subwords import TOKENIZER_FILE, tokenizers_package
from ..tokens import Text
from .families import BERT, GPT2, GPT_NEOX, LLAMA, Family

EXPORTED_FILES = ("config.json", "model.safetensors", TOKENIZER_FILE, "tokenizer_config.json")
SHARED_TOKEN_NAMES = {"padding": "pad", "unknown": "unk", "mask": "mask"}  # Hugging Face names by role
ENCODER_TOKEN_NAMES = {**SHARED_TOKEN_NAMES, "begin": "cls", "end": "sep"}
DECODER_TOKEN_NAMES = {**SHARED_TOKEN_NAMES, "begin": "bos", "end": "eos", "separator": "sep"}


def write(run: Run, folder: Folder) -> list[str]:
    """Write configuration, weights and tokenizer of a run; return notes for the user."""
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
    """Model family for the export of a run; its `write` reports unsupported keys."""
    model = run.recipe.model
    if model.kind == "encoder":
        return BERT
    if model.kind != "decoder":
        message = f"`model.kind: {model.kind}` cannot be exported to Hugging Face, only encoder and decoder"
        raise UserError(message, key="model.kind")
    theirs = {"norm": "rms", "position": "rotary", "activation": "swiglu"}
    likeness = sum(getattr(model, key, None) == value for key, value in theirs.items())
    if likeness >= 2:
        return LLAMA
    return GPT_NEOX if getattr(model, "parallel_residual", False) or model.position == "rotary" else GPT2


EXPORTER = Exporter("huggingface", "text", has_tokens(Text), EXPORTED_FILES, write)
