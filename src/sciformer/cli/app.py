"""The command-line app: argument types and helpers shared by all commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter, Token

from .._version import __version__
from ..errors import UserError
from .terminal import RECIPE_CHANGES, check_run, log, no_changes

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..recipe.plugin import Plugin
    from ..run import Run

CHANGES_HELP = """\
Any key of a recipe can be changed: `--model.depth 8 --train.learning_rate 3e-4 --data.files a.txt b.txt`.
`sciformer recipes NAME` lists the keys of a recipe with their meaning."""
EXIT_STATUS_HELP = """\
Exit status: 0 success, 1 internal error of Sciformer, 2 user error, 128 + n stopped by signal n. A training saves
a checkpoint before it stops; the same command resumes it."""
FIRST_RUN_HELP = """First run: `sciformer train spins/ising-vit` simulates its own data and takes a minute or two."""

app = App(
    name="sciformer",
    help="One transformer, any token: train, compare, explain and use transformers on scientific data.",
    help_epilogue=f"{FIRST_RUN_HELP}\n\n{CHANGES_HELP}\n\n{EXIT_STATUS_HELP}",
    version=__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative=(), show_default=False),
)
app.register_install_completion_command()
app["--install-completion"].help_epilogue = ""

RecipeName = Annotated[str, Parameter(help="Name from `sciformer recipes`, or a .yaml file.")]


def run_path(_: object, tokens: Sequence[Token]) -> Path:
    """Path of a run folder; `~` means the home folder, also in `--run=~/x`."""
    if not (value := tokens[0].value).strip():
        raise ValueError("the name of a folder is empty; give a folder, such as runs/mine.")
    return Path(value).expanduser()


RunName = Annotated[Path, Parameter(help="Folder of a run.", converter=run_path)]
RunFolder = Annotated[Path, Parameter(converter=run_path)]
Quiet = Annotated[bool, Parameter(name="--quiet", help="Show no progress.")]
Overwrite = Annotated[bool, Parameter(name="--overwrite", help="Replace an existing file.")]
AcceptDrift = Annotated[
    bool, Parameter(name="--accept-drift", help="Continue even if a column has another scale than in training.")
]
MapColumns = Annotated[
    tuple[str, ...],
    Parameter(
        name="--map",
        help="Column with another name in these files, OURS=THEIRS: `--map time=HJD`; repeat the option for several.",
    ),
]
Plugins = Annotated[
    tuple[Path, ...],
    Parameter(name="--plugin", help="Your own Python file or folder to load; repeat the option for several."),
]


def load_recipe(name: str, more: Mapping[str, str] | None = None, without: Collection[str | None] = ()) -> Recipe:
    """Load a recipe with the changes of the command line.

    more      further changes
    without   keys to leave unchanged
    """
    from ..recipe import Recipe

    changes = {key: value for key, value in RECIPE_CHANGES.items() if key not in without}
    return Recipe.load(name, {**changes, **(more or {})}, where="on the command line")


def load_recipes(names: tuple[str, ...]) -> list[Recipe]:
    """Load several recipes; a change applies to all recipes with the changed key."""
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
        load_recipe(names[0])  # raises: no recipe has this key
    for name, keys in unknown.items():
        log(f"{', '.join(sorted(map(str, keys)))}: not a key of {name}; this recipe is unchanged")
    return [load_recipe(name, without=unknown.get(name, ())) for name in names]


def load_plugins(paths: tuple[Path, ...]) -> list[Plugin]:
    """Import the files and folders given with --plugin."""
    from ..recipe import plugin

    return [plugin.load(path) for path in paths]


def parse_columns(pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse --map OURS=THEIRS into {column in the recipe: column in the file}."""
    found: dict[str, str] = {}
    for pair in pairs:
        ours, _, theirs = pair.partition("=")
        if not ours or not theirs or ours in found:
            message = f"--map {pair} must have the form OURS=THEIRS, and may name a column only once"
            raise UserError(message, hint="For example --map time=HJD --map value=Vmag", key="--map")
        found[ours] = theirs
    return found


def open_run(
    path: Path, plugins: tuple[Path, ...], columns: tuple[str, ...] = (), files: Sequence[Path] | None = None
) -> Run:
    """Open a run folder; only recipe keys for the reading of files may be changed.

    columns   pairs OURS=THEIRS, for columns with other names in new files
    files     new files to read, for commands that read files
    """
    if not files:
        advice = "It changes how new files are read: name them after the run." if files is not None else ""
        no_changes(advice or "A run keeps the recipe it was trained with.")
        if columns:
            message = "--map renames columns of other files, but no file is named"
            raise UserError(message, hint="Name the files after the run.", key="--map")
    check_run(path)
    loaded = load_plugins(plugins)
    from ..run import Run

    return Run(path, loaded, columns=parse_columns(columns), reading=RECIPE_CHANGES)
