"""The command line: verbs to functions. Torch is imported inside the verbs, so that help is quick.

Exit status: 0 done · 1 a fault of Sciformer's own, with a traceback · 2 a mistake that can be mended, with what to do ·
128 + n stopped by signal n after saving (130 Ctrl-C, 143 SIGTERM); the same command goes on from there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ._version import __version__
from .terminal import CHANGES, check_run, console, no_changes, rank, say, status

if TYPE_CHECKING:
    from .plugin import Plugin
    from .recipe import Recipe
    from .run import Run

CHANGE = """Any key of a recipe can be changed: `--model.depth 8 --train.rate 3e-4 --data.files a.txt b.txt`.
`sciformer recipes NAME` lists the keys of a recipe with their meaning."""
STATUS = """Exit status: 0 done, 1 a fault of ours, 2 a mistake that can be mended, 128 + n stopped by signal n after
saving; the same command goes on from there."""
FIRST = """A first try: `sciformer train spins/ising-vit` simulates its own data and takes a minute or two."""

app = App(
    name="sciformer",
    help="One transformer, any token: train, compare, explain and use transformers on scientists' data.",
    help_epilogue=f"{FIRST}\n\n{CHANGE}\n\n{STATUS}",
    version=__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative=(), show_default=False),
)
app.register_install_completion_command()
app["--install-completion"].help_epilogue = ""

RecipeName = Annotated[str, Parameter(help="A name from `sciformer recipes`, or a .yaml file.")]
RunName = Annotated[Path, Parameter(help="Folder of a run.")]
Plugins = Annotated[
    tuple[Path, ...], Parameter(name="--plugin", help="Python file of your own; give it for each file.")
]


@app.command(sort_key=1, help_epilogue="")
def recipes(name: str | None = None, /) -> None:
    """List what can be run, with paper, data and measured score; or all keys of one recipe, with their meaning.

    Parameters
    ----------
    name
        A recipe: its keys, values and meanings are printed, ready to be saved as a file of your own.
    """
    from .shelf import show_recipes

    if name is None:
        no_changes("Name a recipe to change.")
        show_recipes(console())
    else:
        print(_recipe(name).text(), end="")


@app.command(sort_key=2, help_epilogue="")
def new(kind: str, files: tuple[str, ...], /, *, out: Path | None = None, overwrite: bool = False) -> None:
    """Write a recipe for your own files: columns found, sizes guessed, every guess explained.

    Parameters
    ----------
    kind
        What the files hold: text, or patches (images, lattices, maps).
    files
        Their names.
    out
        Where to write the recipe; here, named after the first file, unless given.
    overwrite
        Replace a recipe that is there already.
    """
    no_changes("Change the recipe when it is written.")
    from .new import new as write

    path = write(kind, list(files), out, overwrite=overwrite)
    print(f"wrote {path}\nnext: sciformer check {path}\n      sciformer train {path}")


@app.command(sort_key=3, help_epilogue=CHANGE)
def check(recipe: RecipeName, /, *, plugin: Plugins = (), deep: bool = False) -> None:
    """Try a recipe before a long run: keys, files, tokens, one step, memory and time.

    Parameters
    ----------
    deep
        Read every file to its end.
    """
    plugins = _plugins(plugin)
    made = _recipe(recipe)
    from . import check as trial

    checked = trial.check(made, plugins, deep=deep, say=say)
    if rank() == 0:
        trial.show_check(checked, console())
    if checked.problems:
        raise SystemExit(2)


@app.command(sort_key=4, help_epilogue=f"{CHANGE}\n\n{STATUS}")
def train(
    recipe: RecipeName,
    /,
    *,
    run: Path | None = None,
    fresh: bool = False,
    accept_changes: bool = False,
    plugin: Plugins = (),
    quiet: bool = False,
) -> None:
    """Train a recipe; the same command again resumes.

    Parameters
    ----------
    run
        Folder of the run: log, checkpoints, model and report. runs/NAME unless given; a run named as recipe goes on.
    fresh
        Start over: what an earlier training left in the folder is removed.
    accept_changes
        Go on although the recipe, the data or a plugin changed since the run was begun.
    quiet
        No progress.
    """
    plugins = _plugins(plugin)
    made = _recipe(recipe)
    if run is None and Path(recipe).is_dir():
        run = Path(recipe)
    from .run import train as start
    from .shelf import show_run

    done = start(made, run, fresh=fresh, accept_changes=accept_changes, plugins=plugins, show=not quiet)
    if rank() == 0:
        show_run(done, console())


@app.command(sort_key=5, help_epilogue=f"{CHANGE}\n\n{STATUS}")
def compare(
    recipe: Annotated[tuple[str, ...], Parameter(help="Names from `sciformer recipes`, or .yaml files.")],
    /,
    *,
    seeds: int = 3,
    run: Path = Path("runs/compare"),
    grid: tuple[str, ...] = (),
    plugin: Plugins = (),
    quiet: bool = False,
) -> None:
    """Train several recipes with several seeds, and put them into one table with mean and spread.

    Parameters
    ----------
    seeds
        How many seeds: 0, 1, 2, ...; 3 unless given.
    run
        Folder of all these runs; runs/compare unless given.
    grid
        Values to try for a key, `--grid train.rate=1e-3,3e-4`; the best by validation is compared.
    quiet
        No progress.
    """
    plugins = _plugins(plugin)
    made = [_recipe(name) for name in recipe]
    from . import compare as contest

    points, tell = contest.parse_grid(list(grid)), None if quiet else say
    found = contest.compare(made, seeds, run, points, plugins=plugins, show=not quiet, say=tell)
    if rank() == 0:
        contest.show_comparison(found, console())
    if found.failed:
        raise SystemExit(2)


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
    opened = _run(run, plugin)
    from .shelf import evaluate_run

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
    from .shelf import check_table, write_answers

    check_table(out)
    opened = _run(run, plugin)
    answers = opened.predict(list(files))
    print(f"wrote {write_answers(out, answers, opened.assembly.objective):,} answers to {out}")


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
    opened = _run(run, plugin)
    from .generate import generate as write

    shown = prompt or ""
    for piece in write(opened, prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, stop=stop, seed=seed):
        print(shown + piece, end="", flush=True)
        shown = ""
    print(shown)


@app.command(sort_key=9, help_epilogue="")
def report(run: RunName, /, *, plugin: Plugins = ()) -> None:
    """Write the report of a run anew: one HTML file that needs nothing else."""
    print(f"wrote {_run(run, plugin).report()}")


@app.command(sort_key=10, help_epilogue="")
def inspect(
    run: RunName, /, *, out: Path | None = None, samples: int = 3, part: str = "", plugin: Plugins = ()
) -> None:
    """Pictures of what a model attends to, drawn on the samples themselves.

    Parameters
    ----------
    out
        Folder for the pictures; RUN/inspect unless given.
    samples
        How many samples to draw; 3 unless given.
    part
        Of which part of the data; test, or valid where there is none, unless given.
    """
    opened = _run(run, plugin)
    from .inspect.report import inspect_run
    from .shelf import make_folder

    for path in inspect_run(opened, make_folder(out or run / "inspect"), samples=samples, part=part, say=say):
        print(f"wrote {path}")


@app.command(sort_key=11, help_epilogue="Keys: `sciformer recipes spins/ising-vit` lists them under `data`.")
def simulate(what: str, out: Path, /) -> None:
    """Simulate data and write them to a file, with the keys of the reader: `--data.size 16 --data.number 20`.

    Parameters
    ----------
    what
        lattices: states of the 2-D Ising model.
    out
        The file to write, .npz.
    """
    from .shelf import simulate_to

    simulate_to(what, out, dict(CHANGES))


# What the verbs share


def _recipe(name: str) -> Recipe:
    """The recipe of this name, with the changes of the command line."""
    from .recipe import Recipe

    return Recipe.load(name, dict(CHANGES), where="on the command line")


def _plugins(paths: tuple[Path, ...]) -> list[Plugin]:
    from . import plugin

    return [plugin.load(path) for path in paths]


def _run(path: Path, plugins: tuple[Path, ...]) -> Run:
    no_changes("A run has its own recipe.")
    check_run(path)
    loaded = _plugins(plugins)
    from .run import Run

    return Run(path, loaded)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; return its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    CHANGES.clear()

    def work() -> None:
        rest = words
        if any(word.startswith("--") and "." in word.partition("=")[0] for word in words):
            from .options import parse_arguments

            rest, found = parse_arguments(words)
            CHANGES.update(found)
        app(rest, console=console(), exit_on_error=False, print_error=False, result_action="return_value")

    return status(work)


def run() -> None:
    """The entry point of the installed command."""
    sys.exit(main())
