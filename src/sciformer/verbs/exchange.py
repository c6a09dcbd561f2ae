"""Verbs that exchange models with others: import, export."""

from __future__ import annotations

from pathlib import Path

from ..terminal import CHANGES, say
from .app import CHANGE, Plugins, RunName, app, open_run


@app.command(name="import", sort_key=12, help_epilogue=CHANGE)
def import_(source: Path, /, *, run: Path | None = None) -> None:
    """Make a run of a model of others: `generate`, `embed`, `evaluate`, `finetune --from` then work on it.

    Weights are read from safetensors, or as nothing but weights from a .bin file: no code of others is ever run. What
    cannot be represented exactly is refused, by the name of the key or weight. With `--data.files FILE` the run has
    data of its own, for `inspect` and `report`.

    Parameters
    ----------
    source
        A folder of Hugging Face (config.json, model.safetensors, tokenizer.json) of the type bert, roberta, gpt2,
        llama, mistral or qwen2; or a .gguf file of the type llama.
    run
        Folder of the run to be made; runs/NAME unless given.
    """
    from ..interop import import_model

    run = run or Path("runs") / source.resolve().name.removesuffix(".gguf")
    made = import_model(source, run, dict(CHANGES), say)
    model = made.recipe.model
    count = f"{made.about['parameters']:,} parameters"
    print(f"wrote {run}: {model.kind} of {model.depth} blocks of width {model.dim}, {count}")


@app.command(sort_key=13, help_epilogue="")
def export(
    run: RunName,
    /,
    *,
    out: Path,
    format: str = "huggingface",
    overwrite: bool = False,
    plugin: Plugins = (),
) -> None:
    """Write the best model of a run for others: config.json, model.safetensors and tokenizer.json.

    An encoder becomes a Bert, a decoder a GPT2 or (RMSNorm, rotary positions, SwiGLU) a Llama; `AutoModelForMaskedLM`,
    `AutoModelForCausalLM` and `AutoTokenizer` of `transformers` load them. Where there is no such class, the key that
    stands in the way is named.

    Parameters
    ----------
    out
        Folder to write.
    format
        For whom; huggingface unless given.
    overwrite
        Replace what an earlier export wrote there.
    """
    opened = open_run(run, plugin)
    from ..interop import export_model

    for note in export_model(opened, out, format, overwrite):
        say(note)
    print(f"wrote {out}")
