"""Verbs that exchange models with others: import, export."""

from __future__ import annotations

from pathlib import Path

from ..errors import UserError
from ..recipe.field import extensions
from .app import CHANGES_HELP, Overwrite, Plugins, RunName, app, open_run
from .terminal import RECIPE_CHANGES, log


@app.command(name="import", sort_key=12, help_epilogue=CHANGES_HELP)
def import_(source: Path, /, *, run: Path | None = None, out: Path | None = None, overwrite: Overwrite = False) -> None:
    """Make a run of a model of others: `generate`, `predict`, `embed`, `evaluate`, `finetune --from` then work on it.

    Weights are read from safetensors, or as nothing but weights from a .bin or .pth file: no code of others is ever
    run. What cannot be represented exactly is refused, by the name of the key or weight. With `--data.files FILE` the
    run has data of its own, for `inspect` and `report`.

    Parameters
    ----------
    source
        A folder of Hugging Face (config.json, model.safetensors, tokenizer.json) of the type bert, roberta, gpt2,
        llama, mistral or qwen2, or (with preprocessor_config.json) vit or vit_mae; a .gguf file of the type llama;
        weights of a vision transformer of timm (.safetensors, .pth, or a folder with its config.json); a checkpoint
        (.pt) of a Particle Transformer or a ParticleNet of weaver; or the weights of ASTROMER 1 (.npz, by their names
        in a TensorFlow checkpoint).
    run
        Folder of the run to be made; runs/NAME unless given.
    out
        Of a data file (.yaml) of weaver, which becomes a recipe: its name; NAME-recipe.yaml unless given.
    """
    if source.suffix in (".yaml", ".yml"):
        _import_data(source, run, out, overwrite)
        return
    if out is not None or overwrite:
        message = f"--out and --overwrite are for a data file (.yaml) alone, not for {source}"
        hint = "A model becomes a run: name its folder with --run."
        raise UserError(message, hint=hint, key="--overwrite" if out is None else "--out", file=source)
    from ..interop import import_model

    name = source.resolve().name
    run = run or Path("runs") / (name.removesuffix(source.suffix) if source.is_file() else name)
    made = import_model(source, run, dict(RECIPE_CHANGES), log)
    model = made.recipe.model
    count = f"{made.about['parameters']:,} parameters"
    print(f"wrote {run}: {model.kind} of {model.depth} blocks of width {model.dim}, {count}")


def _import_data(source: Path, run: Path | None, out: Path | None, overwrite: bool) -> None:
    if run is not None:
        message = f"--run {run} cannot be given for a data file, which becomes a recipe and not a run"
        raise UserError(message, hint="Name the recipe with --out.", key="--run", file=source)
    importer = next(extensions("data_files"), None)
    if importer is None:
        raise UserError(f"{source} cannot be imported, because no field reads data files (.yaml)", file=source)
    made = importer(source, out, dict(RECIPE_CHANGES), overwrite)
    for note in made.notes:
        log(f"without an equal: {note}")
    print(f"wrote {made.path}\nnext: sciformer check {made.path}\n      sciformer train {made.path}")


@app.command(sort_key=13, help_epilogue="")
def export(run: RunName, /, *, out: Path, format: str = "", overwrite: bool = False, plugin: Plugins = ()) -> None:
    """Write the best model of a run for others: for `transformers` of Hugging Face, or as an ONNX graph.

    huggingface: config.json, model.safetensors and tokenizer.json. An encoder becomes a Bert, a decoder a GPT2 or
    (RMSNorm, rotary positions, SwiGLU) a Llama; `AutoModelForMaskedLM`, `AutoModelForCausalLM` and `AutoTokenizer` load
    them. An encoder of patches becomes a ViT, a masked autoencoder of these a ViTMAE, with preprocessor_config.json.
    Where there is no such class, the key that stands in the way is named.

    onnx: model.onnx for any number of samples and tokens, preprocessing.json with what it must be fed, and README.md.
    For encoders of any tokens that answer in one pass (classify, regress), and for the encoder of a masked autoencoder,
    which sums up samples; the answers are checked in onnxruntime.

    Parameters
    ----------
    out
        Folder to write.
    format
        For whom: huggingface or onnx; huggingface unless given.
    overwrite
        Replace what an earlier export wrote there.
    """
    opened = open_run(run, plugin)
    from ..interop import export_model

    for note in export_model(opened, out, format, overwrite):
        log(note)
    print(f"wrote {out}")
