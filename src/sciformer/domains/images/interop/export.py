"""From a run over patches to a folder of Hugging Face: a ViT, or the ViTMAE of a masked autoencoder."""

from __future__ import annotations

from ....interop.export import Exporter, to_json, write_model
from ....run import Run
from ....train.folder import Folder
from ....train.weights import load_weights
from ..tokens import Patches
from . import mae, pixels, vit_export


def accepts(run: Run) -> bool:
    """Whether the only tokens are patches."""
    return [isinstance(tokens, Patches) for tokens in run.assembly.tokens.values()] == [True]


def write(run: Run, folder: Folder) -> list[str]:
    """Write the files of a run, and return what there is to say."""
    weights, _ = load_weights(run.folder.model)
    (tokens,) = run.assembly.tokens.values()
    assert isinstance(tokens, Patches)
    hides = run.recipe.model.kind == "masked_autoencoder" and run.recipe.objective.kind == "masked"
    written, scaled = (mae.write_mae if hides else vit_export.write_vit)(run, tokens, weights)
    write_model(folder, written.config, written.tensors)
    folder.write(pixels.PREPROCESSOR_FILE, to_json(scaled))
    return written.notes


EXPORTER = Exporter(
    "huggingface", "patches", accepts, ("config.json", "model.safetensors", pixels.PREPROCESSOR_FILE), write
)
