"""The command line's frame: the app, the types of its arguments, and what the verbs share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from .._version import __version__
from .terminal import RECIPE_CHANGES, check_run, log, no_changes

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..recipe.plugin import Plugin
    from ..run import Run

CHANGES_HELP = """\
Any key of a recipe can be changed: `--model.depth 8 --train.learning_rate 3e-4 --data.files a.txt b.txt`.
`sciformer recipes NAME` lists the keys of a recipe with their meaning."""
EXIT_STATUS_HELP = """\
Exit status: 0 done, 1 a fault of ours, 2 a mistake that can be mended, 128 + n stopped by signal n after
saving; the same command goes on from there."""
FIRST_RUN_HELP = """A first try: `sciformer train spins/ising-vit` simulates its own data and takes a minute or two."""

app = App(
    name="sciformer",
    help="One transformer, any token: train, compare, explain and use transformers on scientists' data.",
    help_epilogue=f"{FIRST_RUN_HELP}\n\n{CHANGES_HELP}\n\n{EXIT_STATUS_HELP}",
    version=__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative=(), show_default=False),
)
app.register_install_completion_command()
app["--install-completion"].help_epilogue = ""

RecipeName = Annotated[str, Parameter(help="A name from `sciformer recipes`, or a .yaml file.")]
RunName = Annotated[Path, Parameter(help="Folder of a run.")]
Into = Annotated[
    Path | None,
    Parameter(
        name="--run",
        help="Folder of the run: log, checkpoints, model and report. runs/NAME unless given; a run named as recipe "
        "goes on.",
    ),
]
Fresh = Annotated[
    bool, Parameter(name="--fresh", help="Start over: what an earlier training left in the folder is removed.")
]
Accepted = Annotated[
    bool,
    Parameter(
        name="--accept-changes", help="Go on although the recipe, the data or a plugin changed since the run was begun."
    ),
]
Quiet = Annotated[bool, Parameter(name="--quiet", help="No progress.")]
Overwrite = Annotated[bool, Parameter(name="--overwrite", help="Replace a file that is there already.")]
Plugins = Annotated[
    tuple[Path, ...], Parameter(name="--plugin", help="Python file of your own; give it for each file.")
]


def load_recipe(name: str, more: Mapping[str, str] | None = None, without: Collection[str | None] = ()) -> Recipe:
    """The recipe of this name, with the changes of the command line, `more` of them, and `without` some keys."""
    from ..recipe import Recipe

    changes = {key: value for key, value in RECIPE_CHANGES.items() if key not in without}
    return Recipe.load(name, {**changes, **(more or {})}, where="on the command line")


def load_recipes(names: tuple[str, ...]) -> list[Recipe]:
    """Several recipes with the changes of the command line; each takes those of the changes that are keys of it."""
    from ..recipe import RecipeError
    from ..recipe.validate import UnknownKeyError

    unknown: dict[str, set[str | None]] = {}
    for name in names:
        try:
            load_recipe(name)
        except RecipeError as error:
            unknown[name] = {one.key for one in error.errors if isinstance(one, UnknownKeyError)} & {*RECIPE_CHANGES}
            if len(unknown[name]) < len(error.errors) or len(names) == 1:
                raise
    if set.intersection(*(unknown.get(name, set()) for name in names)):
        load_recipe(names[0])  # a key that none of them has: this raises
    for name, keys in unknown.items():
        log(f"{', '.join(sorted(map(str, keys)))}: not a key of {name}, which stays as it is")
    return [load_recipe(name, without=unknown.get(name, ())) for name in names]


def load_plugins(paths: tuple[Path, ...]) -> list[Plugin]:
    """The users' own files."""
    from ..recipe import plugin

    return [plugin.load(path) for path in paths]


def open_run(path: Path, plugins: tuple[Path, ...]) -> Run:
    """The run in this folder."""
    no_changes("A run has its own recipe.")
    check_run(path)
    loaded = load_plugins(plugins)
    from ..run import Run

    return Run(path, loaded)
