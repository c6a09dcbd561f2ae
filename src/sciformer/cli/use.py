"""Verbs that use a trained model: evaluate, calibrate, predict, translate, embed, generate."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from .app import Overwrite, Plugins, Quiet, RunName, app, load_plugins, open_run
from .terminal import console

Lines = Annotated[Path, Parameter(allow_leading_hyphen=True)]  # - is the standard input


@app.command(sort_key=6, help_epilogue="")
def evaluate(
    run: RunName,
    files: tuple[Path, ...] = (),
    /,
    *,
    part: str | None = None,
    until: str | None = None,
    out: Path | None = None,
    plugin: Plugins = (),
) -> None:
    """Scores of a run's best model, on a part of its data or on other files.

    Parameters
    ----------
    files
        Other files of the same form, with the truth in them.
    part
        train, valid, test or another part that the data have; test, or valid where there is none, unless given.
    until
        How soon the answer is known: `--until 10,20,50` judges each sample by what is at most so far after its first
        token, in units of its axis (days of a light curve; tokens of a text), as a table and a picture.
    out
        Of --until: where to draw it, .png, .pdf or .svg; RUN/until.png unless given.
    """
    opened = open_run(run, plugin)
    if until is not None:
        from ..evaluation.truncated import evaluate_truncated

        evaluate_truncated(opened, until, part, files, out, console())
        return
    from .show import evaluate_run

    evaluate_run(opened, part, files, console())


@app.command(sort_key=6.5, help_epilogue="")
def calibrate(run: RunName, /, *, part: str = "valid", undo: bool = False, plugin: Plugins = ()) -> None:
    """Make answers as sure as they are right: one temperature of all probabilities, or one factor of deviations.

    It is fitted to a part that was not trained on and kept beside the weights; evaluate, predict, report and the ONNX
    export then have it. Which class is likeliest, and which value is expected, does not change.

    Parameters
    ----------
    part
        What it is fitted to; valid unless given.
    undo
        Take it back.
    """
    from ..evaluation.calibrate import calibrate_run

    calibrate_run(open_run(run, plugin), part, undo, console())


@app.command(sort_key=7, help_epilogue="")
def predict(
    run: RunName,
    files: tuple[Path, ...],
    /,
    *,
    out: Path = Path("predictions.csv"),
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    plugin: Plugins = (),
) -> None:
    """Answers for new files, as a table: a score for each class, and the columns of the samples beside.

    Samples keep their order. Large files are read, answered and written piece by piece.

    Parameters
    ----------
    files
        Files of the form it was trained on.
    out
        Where to write them: .csv, .h5, .npz, .parquet or .root (a TTree called tree); predictions.csv unless given.
    """
    from ..evaluation.predictions import write_predictions
    from ..files.tables import check_table

    load_plugins(plugin)
    check_table(out)
    opened = open_run(run, plugin)
    count = write_predictions(opened, files, out, overwrite, not quiet)
    print(f"wrote {count:,} answer{'' if count == 1 else 's'} to {out}")


@app.command(sort_key=7, help_epilogue="")
def translate(
    run: RunName,
    file: Lines,
    /,
    *,
    out: Path | None = None,
    beam: int | None = None,
    penalty: float | None = None,
    alignment: Path | None = None,
    line: int = 1,
    plugin: Plugins = (),
) -> None:
    """Translate a file line by line; the answers keep the order of the lines.

    Parameters
    ----------
    file
        Text, one sentence a line, plain or .gz; - reads from the terminal or a pipe.
    out
        File to write; printed unless given.
    beam
        Hypotheses kept while writing; as in the recipe unless given.
    penalty
        Power of the length penalty; as in the recipe unless given.
    alignment
        Draw what a sentence looks at while it is translated: name of a picture, .png, .pdf or .svg.
    line
        The number of the sentence to draw; the first unless given.
    """
    opened = open_run(run, plugin)
    from .text_files import translate_file

    translate_file(opened, file, out, beam, penalty, alignment, line)


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
    map: Path | None = None,
    by: str = "label",
    plugin: Plugins = (),
) -> None:
    """One vector for each sample, in the order of the samples: sentence vectors, say.

    Parameters
    ----------
    files
        Files of the form it was trained on.
    out
        Where to write them: .npy (the vectors alone), or a table of any format (.parquet, .npz, .h5 ...) with the id
        of each sample, or its number, and the other columns of the samples; vectors.parquet unless given.
    pool
        From tokens to a vector: mean, max, last or class_token; as the model does it unless given.
    unit
        Scale vectors to length one, so that their products are cosines.
    stream
        Of several streams of tokens, the one that becomes a vector; the one that was asked about unless given.
    map
        Draw the samples too, in the two directions in which the vectors differ most: a picture, .png, .pdf or .svg.
    by
        Of --map: the column that gives their colours; label unless given.
    """
    from ..evaluation.embed import check_vectors, write_vectors
    from ..evaluation.embed import embed as embed_samples

    load_plugins(plugin)
    check_vectors(out)
    if map is not None:
        from ..files.atomic import check_picture
        from ..inspect.embedding_map import check_colours, write_map

        check_picture(map)
    opened = open_run(run, plugin)
    found = embed_samples(opened, list(files), pool, unit, stream=stream)
    if map is not None:
        check_colours(found, by)
    print(f"wrote {write_vectors(out, found):,} vectors of {found.vectors.shape[1]} numbers to {out}")
    if map is not None:
        write_map(map, found, by)
        print(f"wrote {map}")


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
    precision: str = "auto",
    compile: bool | None = None,
    plugin: Plugins = (),
) -> None:
    """Write text with a trained decoder, as it comes; or for each line of a file.

    Parameters
    ----------
    prompt
        The text to go on from; the beginning of a text or a line unless given.
    file
        Prompts, one a line, plain or .gz; - reads from the terminal or a pipe. Many are written at once.
    out
        File for what is written to these prompts, one a line in their order (line breaks as \\n), or .jsonl for
        prompts and texts as they are; printed unless given.
    length
        Tokens to write; 500 unless given.
    temperature
        0 takes the likeliest token each time; below 1 is careful, above 1 bold; 1 unless given.
    top_k
        Choose among so many likeliest tokens.
    top_p
        Choose among the likeliest tokens that together have this probability.
    repetition
        Above 1: make tokens that were there before less likely; 1.2 does much.
    stop
        End before this text; give it for each.
    beam
        Search for the likeliest text with so many hypotheses, instead of drawing; the text comes as a whole.
    seed
        The same seed writes the same text.
    precision
        Of the weights: float32 or bfloat16; auto: as in training.
    compile
        Compile a step first, on a CUDA device: a minute that pays for long texts. Where it pays unless given.
    """
    wishes: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "repetition": repetition}
    wishes |= {"stop": stop, "beam": beam, "seed": seed, "precision": precision, "compiled": compile}
    from .text_files import check_prompts, generate_file

    check_prompts(prompt, file, out)
    opened = open_run(run, plugin)
    log = partial(print, file=sys.stderr)
    if file is not None:
        generate_file(opened, file, out, length, log=log, **wishes)
        return
    from ..generation.generate import generate as generate_text

    shown = prompt or ""
    for piece in generate_text(opened, prompt, length, log=log, **wishes):
        print(shown + piece, end="", flush=True)
        shown = ""
    print(shown)
