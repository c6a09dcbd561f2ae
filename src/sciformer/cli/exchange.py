"""Commands `import` and `export`: models of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import UserError
from ..recipe.field import extensions
from .app import CHANGES_HELP, Overwrite, Plugins, RunFolder, RunName, app, open_run
from .terminal import RECIPE_CHANGES, log, next_steps, say


@app.command(name="import", sort_key=12, help_epilogue=CHANGES_HELP)
def import_(
    source: Path,
    /,
    *,
    run: RunFolder | None = None,
    classes: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    out: Path | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Import a model of another library as a run.

    The run works with `generate`, `predict`, `embed`, `evaluate` and `finetune`. Weights are read from safetensors
    files, or from .bin, .pt and .pth files as weights only: no foreign code is ever run. A model that cannot be
    represented exactly is refused, with the name of the key or weight. `--data.files FILE` gives the run data for
    `inspect` and `report`.

    Parameters
    ----------
    source
        One of: a Hugging Face folder (config.json, model.safetensors, tokenizer.json) of the type bert, roberta, gpt2,
        gpt_neox, llama, mistral or qwen2, or (with preprocessor_config.json) vit or vit_mae; a .gguf file of the type
        llama; weights of a timm vision transformer (.safetensors, .pth, or a folder with its config.json); a weaver
        checkpoint (.pt or .safetensors) of a Particle Transformer or a ParticleNet; weights of ASTROMER 1 (.npz, with
        the names of its TensorFlow checkpoint); a weaver data file (.yaml), which becomes a recipe.
    run
        Folder of the new run (default: runs/NAME).
    classes
        Class names, in the order of the outputs of the model (default: the names in the source or in `--data.classes`,
        else numbers).
    out
        Name of the recipe written for a weaver data file (default: NAME-recipe.yaml).
    """
    if source.suffix in (".yaml", ".yml"):
        _import_data(source, run, out, overwrite)
        return
    if out is not None or overwrite:
        message = f"--out and --overwrite are only for a weaver data file (.yaml), but the source is {source}"
        hint = "A model is imported as a run: name its folder with --run."
        raise UserError(message, hint=hint, key="--overwrite" if out is None else "--out", file=source)
    from ..interop import import_model

    name = source.resolve().name
    run = run or Path("runs") / (name.removesuffix(source.suffix) if source.is_file() else name)
    made = import_model(source, run, dict(RECIPE_CHANGES), log, classes)
    model = made.recipe.model
    count = f"{made.about['parameters']:,} parameters"
    say(f"wrote {run}: {model.kind} of {model.depth} blocks of width {model.dim}, {count}")


def _import_data(source: Path, run: RunFolder | None, out: Path | None, overwrite: bool) -> None:
    if run is not None:
        message = f"--run {run} cannot be used with a data file, because a data file becomes a recipe and not a run"
        raise UserError(message, hint="Name the recipe with --out.", key="--run", file=source)
    importer = next(extensions("data_files"), None)
    if importer is None:
        raise UserError(f"{source} cannot be imported: no installed field of science reads .yaml files", file=source)
    made = importer(source, out, dict(RECIPE_CHANGES), overwrite)
    for note in made.notes:
        log(f"not imported: {note}")
    say(f"wrote {made.path}")
    say(next_steps("sciformer check PATH", "sciformer train PATH", path=made.path))


@app.command(sort_key=13, help_epilogue="")
def export(
    run: RunName,
    /,
    *,
    out: Path,
    format: str = "",
    overwrite: bool = False,
    stream: str = "",
    raw: Annotated[bool, Parameter(negative=())] = False,
    plugin: Plugins = (),
) -> None:
    """Export the best model of a run to Hugging Face `transformers` or to ONNX.

    huggingface: config.json, model.safetensors and tokenizer.json. An encoder becomes a BERT; a decoder becomes a
    GPT-2, or a Llama if it has RMSNorm, rotary positions and SwiGLU. `AutoModelForMaskedLM`, `AutoModelForCausalLM` and
    `AutoTokenizer` load them. An encoder of patches becomes a ViT, a masked autoencoder a ViTMAE, both with
    preprocessor_config.json. If no class of `transformers` fits, the error names the key that prevents it.

    onnx: model.onnx for any number of samples and tokens, preprocessing.json with its inputs, and README.md. An encoder
    can be exported if it predicts in one pass (classify, regress), with any kind of tokens, or if it belongs to a
    contrastive model. Of a masked autoencoder, the encoder is exported, with one vector per sample as output. Of an
    encoder-decoder, the encoder is exported, with the features for the decoder as output. The outputs are compared with
    outputs of onnxruntime.

    Parameters
    ----------
    out
        Folder to write.
    format
        huggingface or onnx (default: huggingface).
    overwrite
        Replace an earlier export in that folder.
    stream
        Stream whose encoder is written, if each stream has an encoder; only for onnx (default: the stream of the
        objective).
    raw
        Put the preprocessing into model.onnx, which then takes raw samples, such as the pixels of images; only for
        onnx.
    """
    opened = open_run(run, plugin)
    from ..interop import export_model

    for note in export_model(opened, out, format, overwrite, stream, raw):
        log(note)
    say(f"wrote {out}")
