"""Commands: evaluate, calibrate, predict, translate, embed and generate."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import UserError
from .app import AcceptDrift, MapColumns, Overwrite, Plugins, Quiet, RunName, app, load_plugins, open_run
from .terminal import console, for_stdout, log, say, suggest_argument

Length = Annotated[float | None, Parameter(name=("--length", "--hours"))]
Lines = Annotated[Path, Parameter(allow_leading_hyphen=True)]  # - is the standard input
Sources = Annotated[tuple[Path, ...], Parameter(allow_leading_hyphen=True)]


def refuse_without_mask(length: float | None, factor: int | None, change: tuple[str, ...] = ()) -> None:
    """Refuse the options of --mask if there is no mask."""
    for name, value in (("--length", length), ("--factor", factor), ("--change", change or None)):
        if value is not None:
            raise UserError(f"{name} needs --mask", hint="Name a mask: --mask forecast", key=name)


@app.command(sort_key=6, help_epilogue="")
def evaluate(
    run: RunName,
    files: tuple[Path, ...] = (),
    /,
    *,
    part: str | None = None,
    until: str | None = None,
    out: Path | None = None,
    mask: str = "",
    length: Length = None,
    factor: int | None = None,
    accept_drift: AcceptDrift = False,
    map: MapColumns = (),
    plugin: Plugins = (),
) -> None:
    """Evaluate the best model of a run on a part of its data or on other files.

    Parameters
    ----------
    files
        Other files in the format of the training data, with labels or targets.
    part
        train, valid, test or another part of the data (default: test; valid if there is no test part).
    until
        Evaluate on the beginning of each sample: `--until 10,20,50` keeps the tokens up to each distance from the first
        token, in units of the axis (days of a light curve, tokens of a text). The scores are printed and drawn.
    out
        Figure of --until: .png, .pdf or .svg (default: RUN/until.png).
    mask
        Evaluate a masked model on another task than its training: forecast, between, downscale, inpaint or bias. The
        scores are in the units of the data.
    length
        Length of the mask, for a forecast or a gap in hours (default: the length in training, or objective.mask_ratio).
    factor
        Number of grid cells along each side of the blocks of --mask downscale (default: objective.coarse_factor).
    """
    opened = open_run(run, plugin, map, files)
    if mask:
        from .show import evaluate_mask

        evaluate_mask(opened, part, files, mask, length, factor, console())
        return
    refuse_without_mask(length, factor)
    if until is not None:
        from ..evaluation.truncated import evaluate_truncated

        evaluate_truncated(opened, until, part, files, out, console())
        return
    from .show import evaluate_run

    evaluate_run(opened, part, files, console(), accept_drift)


@app.command(sort_key=6.5, help_epilogue="")
def calibrate(run: RunName, /, *, part: str = "valid", undo: bool = False, plugin: Plugins = ()) -> None:
    """Calibrate the predicted probabilities or standard deviations of a run.

    Probabilities are calibrated by a temperature, standard deviations by a factor. The calibration is fitted to a part
    that was not trained on, and stored beside the weights. The commands evaluate, predict, report and the ONNX export
    use it. Predicted classes and predicted values do not change.

    Parameters
    ----------
    part
        Part of the data to fit the calibration to (default: valid).
    undo
        Remove the calibration.
    """
    from ..evaluation.calibrate import calibrate_run

    calibrate_run(open_run(run, plugin), part, undo, console())


@app.command(sort_key=7, help_epilogue="")
def predict(
    run: RunName | None = None,
    files: tuple[Path, ...] = (),
    /,
    *,
    out: Path = Path("predictions.csv"),
    shards: int | None = None,
    shard: int | None = None,
    format: str = "parquet",
    merge: Path | None = None,
    rows: str = "",
    classes: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    mask: str = "",
    length: Length = None,
    factor: int | None = None,
    change: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    overwrite: Overwrite = False,
    accept_drift: AcceptDrift = False,
    quiet: Quiet = False,
    map: MapColumns = (),
    plugin: Plugins = (),
) -> None:
    """Write predictions for new files as a table, beside the columns of the samples.

    Samples keep their order. Large files are read, predicted and written in chunks. The column `drift` is the fraction
    of the values of a sample that lie outside the range of the training data, for the data column with the largest
    fraction. Predictions of texts have the line number of the text. Keys of `data:` for the reading of files can be
    changed: `--data.errors replace`.

    Many processes can share the work: `--shards 64 --shard 3 --out scores/` writes one of 64 tables, and `--merge
    scores/ --out scores.parquet` makes one table of them. `sciformer status scores/` names the missing shards.

    Zero-shot: a run that was trained to compare samples with texts (CoCa, CLIP) puts each sample into the class whose
    text is the nearest: `--classes "a red disc" "a blue star"`.

    Parameters
    ----------
    run
        Folder of a run.
    files
        Files in the format of the training data; taggers also read running text.
    out
        Table to write: .csv, .h5, .jsonl, .npz, .parquet, or .root with the TTree `tree`; taggers also write .conll
        (default: predictions.csv). With --shards: the folder of the shards.
    shards
        Number of shards to divide the samples into; --out is then a folder with a table for each shard.
    shard
        Number of the shard to predict, from 0 (default: all missing shards, one after the other).
    format
        Format of the shards: csv, h5, jsonl, npz, parquet or root (default: parquet).
    merge
        Folder of shards to merge into the table --out; needs no run and no files.
    rows
        Rows of the predictions of a tagger: words, or entities with their type and position (default: words).
    classes
        Texts that describe the classes, for zero-shot classification. NAME=TEXT names the class; several texts with one
        name are averaged.
    mask
        Predict a hidden part of the files in the units of the data: forecast (beyond their end), between, downscale,
        inpaint or bias. --out is then a file of the format of the input, such as .nc.
    length
        Length of the mask, for a forecast or a gap in hours: `--mask forecast --hours 72`.
    factor
        Number of grid cells along each side of the blocks of --mask downscale (default: objective.coarse_factor).
    change
        Counterfactual: add a number to all values of a field of the input, `--mask forecast --change t2m=+2K`. The
        answers for the changed input, and their differences from those for the input as it is, are written to --out,
        and the differences are drawn as maps into a PNG file of the same name.
    """
    if not mask:
        refuse_without_mask(length, factor, change)
    if merge is not None:
        from .shards import merge_into

        if run is not None or shards is not None or shard is not None or classes:
            hint = "Name only the folder and the table: sciformer predict --merge FOLDER --out FILE"
            words = "--merge cannot be used with a run, --shards, --shard or --classes"
            raise UserError(words, hint=hint, key="--merge")
        merge_into(merge, out, overwrite)
        return
    if run is None or not files:
        missing = "RUN and FILES" if run is None else "FILES"
        raise UserError(
            f"`sciformer predict` needs {missing}", hint=suggest_argument("RUN" if run is None else "FILES")
        )
    load_plugins(plugin)
    if shards is not None or shard is not None:
        from .shards import parse_sharding, predict_in_shards

        if overwrite:
            hint = "Choose another folder, or remove it first."
            raise UserError("--overwrite cannot be used with --shards", hint=hint, key="--overwrite")
        if rows:
            raise UserError("--rows cannot be used with --shards", hint="Leave --rows out.", key="--rows")
        if classes:
            raise UserError("--classes cannot be used with --shards", hint="Leave --shards out.", key="--classes")
        sharding = parse_sharding(out, shards, shard, format)
        predict_in_shards(open_run(run, plugin, map, files), files, out, sharding, shard, not quiet, accept_drift)
        return
    if mask:
        from ..evaluation.restore import write_task

        count = write_task(open_run(run, plugin, map, files), files, out, mask, length, factor, overwrite, change)
        say(f"wrote {count:,} time steps to {out}")
        return
    from ..evaluation.predictions import write_predictions
    from ..files.tables import check_table
    from .show import count_words

    check_table(out)
    opened = open_run(run, plugin, map, files)
    if classes:
        from ..evaluation.zero_shot import write_classes

        if rows:
            raise UserError("--rows cannot be used with --classes", hint="Leave --rows out.", key="--rows")
        count = write_classes(opened, files, out, classes, overwrite, accept_drift, log)
        say(f"wrote {count_words(count, 'prediction')} to {out}")
        return
    count = write_predictions(opened, files, out, overwrite, not quiet, accept_drift, rows)
    say(f"wrote {count_words(count, 'row' if rows else 'prediction')} to {out}")


@app.command(sort_key=7, help_epilogue="")
def translate(
    run: RunName,
    files: Sources,
    /,
    *,
    out: Path | None = None,
    overwrite: Overwrite = False,
    beam: int | None = None,
    penalty: float | None = None,
    alignment: Path | None = None,
    line: int = 1,
    plugin: Plugins = (),
) -> None:
    """Translate the lines of a text file, or write captions for samples.

    The output keeps the order of the lines or samples.

    Parameters
    ----------
    files
        Text file with one sentence per line, plain or .gz; - reads the standard input. For captions: files or folders
        of samples, in the format of the training data.
    out
        File to write, with one translation per line (default: standard output). Captions can
        also be written as a table (.csv, .jsonl, .parquet, ...) beside the columns of the samples.
    beam
        Beam size (default: `objective.beam` of the recipe).
    penalty
        Exponent of the length penalty (default: `objective.penalty` of the recipe).
    alignment
        Figure of the attention alignment of one sentence or sample: .png, .pdf or .svg.
    line
        Number of the sentence or sample to draw (default: 1).
    """
    opened = open_run(run, plugin)
    from .text_files import translate_file, translate_samples, translates_text

    if not translates_text(opened):
        translate_samples(opened, files, out, overwrite, beam, penalty, alignment, line)
        return
    if len(files) > 1:
        message = f"only one text file is translated at a time, not {len(files)}"
        raise UserError(message, hint="Join them: cat FILES | sciformer translate RUN -", key="FILES")
    translate_file(opened, files[0], out, beam, penalty, alignment, line)


@app.command(sort_key=7.5, help_epilogue="")
def embed(
    run: RunName,
    files: tuple[Path, ...],
    /,
    *,
    out: Path = Path("vectors.parquet"),
    pool: str = "model",
    unit: bool = False,
    stream: str = "",
    plot: Path | None = None,
    by: str = "label",
    accept_drift: AcceptDrift = False,
    map: MapColumns = (),
    plugin: Plugins = (),
) -> None:
    """Write one embedding vector per sample, for example sentence embeddings.

    Parameters
    ----------
    files
        Files in the format of the training data. For a stream of texts beside another stream (captions of images): also
        a text file (.txt) with a text on each line.
    out
        File to write (default: vectors.parquet): .npy with the vectors alone, or a table (.parquet, .npz, .h5, ...)
        with the id or number of each sample and its other columns.
    pool
        Pooling of the tokens: mean, max, last or class_token (default: the pooling of the model). projection: the unit
        vectors compared by a contrastive objective.
    unit
        Scale vectors to length 1, so that their dot products are cosines.
    stream
        Stream of tokens to embed, if there are several (default: the stream of the objective).
    plot
        Figure of the samples along the first two principal components: .png, .pdf or .svg.
    by
        Column that colours the samples of --plot (default: label).
    """
    from ..evaluation.embed import check_vectors, write_vectors
    from ..evaluation.embed import embed as embed_samples
    from .show import count_words

    load_plugins(plugin)
    check_vectors(out)
    if plot is not None:
        from ..files.atomic import check_picture
        from ..inspection.embedding_map import check_colours, write_map

        check_picture(plot)
    opened = open_run(run, plugin, map, files)
    found = embed_samples(opened, list(files), pool, unit, stream=stream, accept_drift=accept_drift, log=log)
    if plot is not None:
        check_colours(found, by)
    say(f"wrote {count_words(write_vectors(out, found), 'vector')} of {found.vectors.shape[1]} numbers to {out}")
    if plot is not None:
        write_map(plot, found, by)
        say(f"wrote {plot}")


@app.command(sort_key=8, help_epilogue="")
def generate(
    run: RunName,
    /,
    *,
    prompt: str | None = None,
    file: Lines | None = None,
    out: Path | None = None,
    length: int = 500,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition: float = 1.0,
    stop: tuple[str, ...] = (),
    beam: int = 1,
    seed: int | None = None,
    number: int = 1,
    guidance: float | None = None,
    steps: int | None = None,
    attention: Path | None = None,
    precision: str = "auto",
    compile: bool | None = None,
    plugin: Plugins = (),
) -> None:
    """Generate text, or samples such as pictures, with a trained model.

    The model continues a prompt, or generates samples for it; --file has many prompts, one per line. Samples are
    written into a folder, with a contact sheet of all samples. The same seed gives the same samples.

    Parameters
    ----------
    prompt
        Text to continue (default: the beginning of a text or a line); or words that describe a sample (default: no
        condition). For conditions that are numbers: NAME=VALUE,NAME=VALUE.
    file
        File of prompts, one per line, plain or .gz; - reads the standard input. Prompts are processed in batches.
    out
        File for the generated texts, one per line in the order of the prompts, with line breaks as \\n; or .jsonl with
        prompts and texts (default: standard output). For samples: folder of the files (default: RUN/generated).
    length
        Number of tokens to generate (default: 500).
    temperature
        Sampling temperature (default: 1). 0 always takes the most likely token.
    top_k
        Sample from the k most likely tokens only.
    top_p
        Sample from the most likely tokens whose probabilities add up to p (nucleus sampling).
    repetition
        Repetition penalty (default: 1, none). Above 1, tokens that occurred before become less likely.
    stop
        Text at which generation stops; repeat --stop for several texts.
    beam
        Beam size (default: 1). Above 1, beam search replaces sampling.
    seed
        Random seed; the same seed gives the same text, and the same samples.
    number
        Number of samples of each prompt (default: 1).
    guidance
        Weight of classifier-free guidance (default: `objective.guidance` of the recipe).
    steps
        Number of denoising steps of a diffusion model (default: `objective.sampling_steps` of the recipe).
    attention
        Figure of the attention to each word while the first sample is made: .png, .pdf or .svg.
    precision
        Precision of the weights: float32, bfloat16, or auto (default: auto, as in training).
    compile
        Compile the decoding step on a CUDA device, which takes about a minute (default: only for long texts).
    """
    wishes: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "repetition": repetition}
    wishes |= {"stop": stop, "beam": beam, "seed": seed, "precision": precision, "compiled": compile}
    from ..generation.samples import makes_samples
    from .text_files import check_out, check_prompts, generate_file

    check_prompts(prompt, file)
    opened = open_run(run, plugin)
    log = partial(print, file=sys.stderr)
    if makes_samples(opened):
        from .samples import check_options, write_generated

        check_options(length=length != 500, repetition=repetition != 1, stop=bool(stop), beam=beam != 1)
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        made = {"number": number, "seed": seed, "guidance": guidance, "steps": steps}
        write_generated(opened, prompt, file, out or run / "generated", sampling, attention, log=log, **made)
        return
    for name, given in {"number": number != 1, "guidance": guidance, "steps": steps, "attention": attention}.items():
        if given:
            message = f"--{name} belongs to runs that make samples, but this run writes text"
            raise UserError(message, hint=f"Leave --{name} out.", key=f"--{name}")
    check_out(out, file)
    if file is not None:
        generate_file(opened, file, out, length, log=log, **wishes)
        return
    from ..generation.generate import generate as generate_text

    shown = prompt or ""
    for piece in generate_text(opened, prompt, length, log=log, **wishes):
        print(for_stdout(shown + piece), end="", flush=True)
        shown = ""
    print(shown)
