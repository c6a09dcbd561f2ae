"""The command line: verbs to functions. Torch is imported inside the verbs, so that help is quick.

Exit status: 0 done · 1 a fault of Sciformer's own, with a traceback · 2 a mistake that can be mended, with what to do ·
128 + n stopped by signal n after saving (130 Ctrl-C, 143 SIGTERM); the same command goes on from there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ._version import __version__
from .errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from .plugin import Plugin
    from .recipe import Recipe
    from .run import Run

EPILOGUE = """Any key of a recipe can be changed: `--model.depth 8 --train.rate 3e-4 --data.files a.txt b.txt`.
`sciformer recipes NAME` lists the keys of a recipe with their meaning.

Exit status: 0 done, 1 a fault of ours, 2 a mistake that can be mended, 128 + n stopped by signal n after saving."""

app = App(
    name="sciformer",
    help="One transformer, any token: train, compare, explain and use transformers on scientists' data.",
    help_epilogue=EPILOGUE,
    version=__version__,
    help_format="markdown",
    default_parameter=Parameter(negative=()),
)
app.register_install_completion_command()

Plugins = Annotated[tuple[Path, ...], Parameter(name="--plugin", negative=(), consume_multiple=True)]
RunFolder = Annotated[Path, Parameter(name="--run")]


@app.command
def recipes(name: str | None = None, /) -> None:
    """List what can be run, with paper, data and measured score; or all keys of one recipe, with their meaning.

    Parameters
    ----------
    name
        A recipe: its keys, values and meanings are printed, ready to be saved as a file of your own.
    """
    from .recipe import Recipe
    from .shelf import show_recipes

    if name is None:
        show_recipes(_console())
    else:
        print(Recipe.load(name).text(), end="")


@app.command
def new(
    kind: str,
    files: Annotated[tuple[str, ...], Parameter(negative=())],
    /,
    *,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
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
    from .new import new as write

    path = write(kind, list(files), out, overwrite=overwrite)
    print(f"wrote {path}")
    print(f"next: sciformer check {path}\n      sciformer train {path}")


@app.command
def train(
    recipe: str,
    /,
    *,
    run: RunFolder | None = None,
    fresh: bool = False,
    accept_changes: bool = False,
    plugin: Plugins = (),
    quiet: bool = False,
) -> None:
    """Train a recipe; the same command again resumes.

    Parameters
    ----------
    recipe
        A name from `sciformer recipes`, or a .yaml file.
    run
        Folder of the run: log, checkpoints, model and report. runs/NAME unless given.
    fresh
        Start over: what an earlier training left in the folder is removed.
    accept_changes
        Go on although the recipe, the data or a plugin changed since the run was begun.
    plugin
        Python files of your own that define tokens, models or objectives.
    quiet
        No progress.
    """
    plugins = _plugins(plugin)
    made = _recipe(recipe)
    from .run import train as start

    done = start(made, run, fresh=fresh, accept_changes=accept_changes, plugins=plugins, show=not quiet)
    if int(os.environ.get("RANK", "0")) == 0:
        from .shelf import show_run

        show_run(done, _console())


@app.command
def check(recipe: str, /, *, plugin: Plugins = (), deep: bool = False) -> None:
    """Try a recipe before a long run: keys, files, tokens, one step, memory and time.

    Parameters
    ----------
    recipe
        A name from `sciformer recipes`, or a .yaml file.
    plugin
        Python files of your own; their tokens are put through the conformance tests.
    deep
        Read every file to its end.
    """
    plugins = _plugins(plugin)
    made = _recipe(recipe)
    from .check import check as try_out
    from .check import show_check

    checked = try_out(made, plugins, deep=deep)
    show_check(checked, _console())
    if checked.problems:
        raise SystemExit(2)


@app.command
def compare(
    recipe: Annotated[tuple[str, ...], Parameter(negative=())],
    /,
    *,
    seeds: int = 3,
    run: RunFolder = Path("runs/compare"),
    grid: Annotated[tuple[str, ...], Parameter()] = (),
    plugin: Plugins = (),
    quiet: bool = False,
) -> None:
    """Train several recipes with several seeds, and put them into one table with mean and spread.

    Parameters
    ----------
    recipe
        Names or files.
    seeds
        How many seeds: 0, 1, 2, ...
    run
        Folder of all these runs.
    grid
        Values to try for a key, `--grid train.rate=1e-3,3e-4`; the best by validation is compared.
    plugin
        Python files of your own.
    quiet
        No progress.
    """
    plugins = _plugins(plugin)
    made = [_recipe(name) for name in recipe]
    from .compare import compare as compare_all
    from .compare import parse_grid, show_comparison

    found = compare_all(made, seeds, run, parse_grid(list(grid)), plugins=plugins, show=not quiet)
    show_comparison(found, _console())
    if found.failed:
        raise SystemExit(2)


@app.command
def generate(
    run: Path,
    /,
    *,
    prompt: str = "\n",
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
    run
        Folder of a run.
    prompt
        The text to go on from.
    length
        Tokens to write.
    temperature
        0 takes the likeliest token each time; below 1 is careful, above 1 bold.
    top_k
        Choose among so many likeliest tokens.
    top_p
        Choose among the likeliest tokens that together have this probability.
    stop
        End where this text appears.
    seed
        The same seed writes the same text.
    plugin
        Python files of your own that the run was made with.
    """
    opened = _run(run, plugin)
    from .generate import generate as write

    pieces = write(
        opened, prompt, length=length, temperature=temperature, top_k=top_k, top_p=top_p, stop=stop, seed=seed
    )
    first = next(pieces, "")
    print(prompt.lstrip("\n") + first, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


@app.command
def predict(
    run: Path,
    files: Annotated[tuple[Path, ...], Parameter(negative=())],
    /,
    *,
    out: Path = Path("predictions.csv"),
    plugin: Plugins = (),
) -> None:
    """Answers for new files, as a table.

    Parameters
    ----------
    run
        Folder of a run.
    files
        Files of the form it was trained on.
    out
        Where to write them: .csv or .npz.
    plugin
        Python files of your own that the run was made with.
    """
    opened = _run(run, plugin)
    from .shelf import write_answers

    answers = opened.predict(list(files))
    print(f"wrote {write_answers(out, answers)} answers to {out}")


@app.command
def evaluate(
    run: Path,
    files: Annotated[tuple[Path, ...], Parameter()] = (),
    /,
    *,
    part: str = "test",
    plugin: Plugins = (),
) -> None:
    """Scores of a run's best model, on a part of its data or on other files.

    Parameters
    ----------
    run
        Folder of a run.
    files
        Other files of the same form, with the truth in them.
    part
        train, valid, test or another part that the data have.
    plugin
        Python files of your own that the run was made with.
    """
    opened = _run(run, plugin)
    from .shelf import show_scores

    show_scores(opened.evaluate(part, list(files)), _console())


@app.command
def report(run: Path, /, *, plugin: Plugins = ()) -> None:
    """Write the report of a run anew: one HTML file that needs nothing else.

    Parameters
    ----------
    run
        Folder of a run.
    plugin
        Python files of your own that the run was made with.
    """
    print(f"wrote {_run(run, plugin).report()}")


@app.command
def inspect(
    run: Path, /, *, out: Path | None = None, samples: int = 3, part: str = "test", plugin: Plugins = ()
) -> None:
    """Pictures of what a model attends to, drawn on the samples themselves.

    Parameters
    ----------
    run
        Folder of a run.
    out
        Folder for the pictures; RUN/inspect unless given.
    samples
        How many samples to draw.
    part
        Of which part of the data.
    plugin
        Python files of your own that the run was made with.
    """
    opened = _run(run, plugin)
    from .inspect.report import inspect_run

    for path in inspect_run(opened, out or run / "inspect", samples=samples, part=part):
        print(f"wrote {path}")


@app.command
def simulate(what: str, out: Path, /) -> None:
    """Simulate data and write them to a file, with the keys of the reader: `--data.size 16 --data.number 20`.

    Parameters
    ----------
    what
        lattices: states of the 2-D Ising model.
    out
        The file to write, .npz.
    """
    from .errors import one_of
    from .recipe import Recipe

    one_of("what to simulate", what, ["lattices"])
    if out.suffix != ".npz":
        raise UserError("a file named .npz", str(out))
    from .data.readers.lattices import simulate as make
    from .data.readers.lattices import write_table

    section = Recipe.load("spins/ising-vit", _CHANGES, where="on the command line").data
    _used()
    table = make(section)
    write_table(out, table)
    print(f"wrote {len(table['image']):,} lattices to {out}")


# What the verbs share

_CHANGES: dict[str, Any] = {}


def _used() -> None:
    _CHANGES.clear()


def _recipe(name: str) -> Recipe:
    """The recipe of this name, with the changes of the command line."""
    from .recipe import Recipe

    return Recipe.load(name, dict(_CHANGES), where="on the command line")


def _plugins(paths: tuple[Path, ...]) -> list[Plugin]:
    from . import plugin

    return [plugin.load(path) for path in paths]


def _run(path: Path, plugins: tuple[Path, ...]) -> Run:
    if _CHANGES:
        raise UserError("no changes of keys: the run has its own recipe", f"--{next(iter(_CHANGES))}")
    loaded = _plugins(plugins)
    if path.suffix in (".pt", ".pth", ".ckpt", ".pkl", ".bin"):
        raise UserError("the folder of a run", f"{path}", "Such files can run code when they are opened; we never do.")
    from .run import Run

    return Run(path, loaded)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; return its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        _CHANGES.clear()
        if any(word.startswith("--") and "." in word.partition("=")[0] for word in words):
            from .recipe import parse_arguments

            words, found = parse_arguments(words)
            _CHANGES.update(found)
        app(words, exit_on_error=True, print_error=True)
        return 0
    except UserError as error:
        _complain(error)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as error:
        code = error.code
        if code == 1:  # cyclopts' own refusals are mistakes of the user's
            return 2
        return code if isinstance(code, int) else 0 if code is None else 2
    except Exception as error:
        from .errors import Stopped

        if isinstance(error, Stopped):
            print(str(error), file=sys.stderr)
            return 128 + error.signal
        raise


def _complain(error: UserError) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text("error: ", style="bold red") + Text(str(error)))


def run() -> None:
    """The entry point of the installed command."""
    sys.exit(main())


if __name__ == "__main__":
    run()
