"""Verbs that use a trained model: evaluate, predict, translate, embed, generate."""

from __future__ import annotations

from pathlib import Path

from ..terminal import console
from .app import Plugins, RunName, app, open_run


@app.command(sort_key=6, help_epilogue="")
def evaluate(run: RunName, files: tuple[Path, ...] = (), /, *, part: str | None = None, plugin: Plugins = ()) -> None:
    """Scores of a run's best model, on a part of its data or on other files.

    Parameters
    ----------
    files
        Other files of the same form, with the truth in them.
    part
        train, valid, test or another part that the data have; test, or valid where there is none, unless given.
    """
    opened = open_run(run, plugin)
    from ..shelf import evaluate_run

    evaluate_run(opened, part, files, console())


@app.command(sort_key=7, help_epilogue="")
def predict(
    run: RunName, files: tuple[Path, ...], /, *, out: Path = Path("predictions.csv"), plugin: Plugins = ()
) -> None:
    """Answers for new files, as a table.

    Parameters
    ----------
    files
        Files of the form it was trained on.
    out
        Where to write them: .csv or .npz; predictions.csv unless given.
    """
    from ..shelf import check_table, write_answers

    check_table(out)
    opened = open_run(run, plugin)
    answers = opened.predict(list(files))
    print(f"wrote {write_answers(out, answers, opened.assembly.objective):,} answers to {out}")


@app.command(sort_key=7, help_epilogue="")
def translate(
    run: RunName,
    file: Path,
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
    from ..by_line import translate_file

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
    plugin: Plugins = (),
) -> None:
    """One vector for each sample, in the order of the samples: sentence vectors, say.

    Parameters
    ----------
    files
        Files of the form it was trained on.
    out
        Where to write them: .parquet (with an id and the other columns of the samples) or .npy (the vectors alone);
        vectors.parquet unless given.
    pool
        From tokens to a vector: mean, max, last or class_token; as the model does it unless given.
    unit
        Scale vectors to length one, so that their products are cosines.
    """
    from ..embed import check_vectors, write_vectors
    from ..embed import embed as make

    check_vectors(out)
    opened = open_run(run, plugin)
    found = make(opened, list(files), pool, unit)
    print(f"wrote {write_vectors(out, found):,} vectors of {found.vectors.shape[1]} numbers to {out}")


@app.command(sort_key=8, help_epilogue="")
def generate(
    run: RunName,
    /,
    *,
    prompt: str | None = None,
    length: int = 500,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: str = "",
    seed: int | None = None,
    plugin: Plugins = (),
) -> None:
    """Write text with a trained decoder, as it comes.

    Parameters
    ----------
    prompt
        The text to go on from; the beginning of a line unless given.
    length
        Tokens to write; 500 unless given.
    temperature
        0 takes the likeliest token each time; below 1 is careful, above 1 bold; 1 unless given.
    top_k
        Choose among so many likeliest tokens.
    top_p
        Choose among the likeliest tokens that together have this probability.
    stop
        End before this text.
    seed
        The same seed writes the same text.
    """
    opened = open_run(run, plugin)
    from ..generate import generate as write

    shown = prompt or ""
    for piece in write(opened, prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, stop=stop, seed=seed):
        print(shown + piece, end="", flush=True)
        shown = ""
    print(shown)
