"""Commands: recipes, new, check, train, pretrain, finetune and compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..errors import UserError
from ..recipe.field import places
from .app import (
    CHANGES_HELP,
    EXIT_STATUS_HELP,
    Overwrite,
    Plugins,
    Quiet,
    RecipeName,
    RunFolder,
    app,
    load_plugins,
    load_recipe,
    load_recipes,
    run_path,
)
from .terminal import RECIPE_CHANGES, console, find_runs, log, next_steps, no_changes, rank, say

if TYPE_CHECKING:
    from ..recipe import Recipe

TRAIN_HELP = f"{CHANGES_HELP}\n\n{EXIT_STATUS_HELP}"
NEW_HELP = """\
Any key of the recipe can be given; the other keys are guessed to fit: `--data.time HJD --objective.kind regress
--data.test new.csv`. Files are sorted into parts by the words train, valid and test in their names."""
RUN_HELP = """Run folder, for log, checkpoints, model and report (default: runs/NAME).
If RECIPE is a run folder, that run is resumed."""
ACCEPT_HELP = "Resume even if the recipe, the data or a plugin changed since the run was started."
KIND_HELP = f"Contents of the files: {', '.join(places('new'))}. Optional if the file names show it, as for images."


@app.command(sort_key=1, help_epilogue="")
def recipes(name: str | None = None, /) -> None:
    """List all recipes with paper, data and score, or print all keys of one recipe.

    Parameters
    ----------
    name
        Recipe to print, with keys, values and meanings; save the output as a recipe of your own.
    """
    from .show import show_recipes

    if name is None:
        no_changes("Name the recipe to change.")
        show_recipes(console())
    else:
        print(load_recipe(name).to_yaml(), end="")


@app.command(sort_key=2, help_epilogue=NEW_HELP)
def new(
    kind: Annotated[str, Parameter(help=KIND_HELP)],
    files: tuple[str, ...] = (),
    /,
    *,
    out: Path | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a recipe for your own files: find columns, guess sizes, give reasons.

    Parameters
    ----------
    files
        Files or folders. For most kinds a class can be written before a name: QCD:qcd.root.
    out
        Recipe to write (default: named after the first file, in the current folder).
    """
    from ..recipe.new import new as write_recipe

    changes = dict(RECIPE_CHANGES)
    path = write_recipe(
        kind, list(files), out, changes=changes, overwrite=overwrite, log=log, where="on the command line"
    )
    RECIPE_CHANGES.clear()  # they are in the recipe now
    if getattr(load_recipe(str(path)).data, "bad_files", "") == "skip":
        say(f"some files cannot be read and are skipped; the comments at the top of {path} list them")
    say(f"wrote {path}")
    say(next_steps("sciformer check PATH", "sciformer train PATH", path=path))


@app.command(sort_key=3, help_epilogue=CHANGES_HELP)
def check(recipe: RecipeName, /, *, plugin: Plugins = (), deep: bool = False, hashes: Path | None = None) -> None:
    """Check a recipe before a long run: keys, files, tokens, a step, memory, time.

    Parameters
    ----------
    deep
        Check all samples of every part (default: only the first 2048 samples).
    hashes
        File with the SHA-256 hashes of all data files, in the format of sha256sum. If the file exists, the data files
        are compared with it; otherwise it is written (default: none; with --deep, RECIPE.sha256 beside the recipe, if
        this file exists).
    """
    plugins = load_plugins(plugin)
    made = load_recipe(recipe)
    from ..checks.check import check as check_recipe
    from ..checks.check import show_check

    beside = Path(recipe).with_suffix(".sha256")
    hashes = beside if hashes is None and deep and beside.is_file() else hashes
    checked = check_recipe(made, plugins, deep=deep, hashes=hashes, log=log)
    if rank() == 0:
        show_check(checked, console())
    if checked.problems:
        raise SystemExit(2)


@Parameter(name="*")
@dataclass(frozen=True)
class TrainOptions:
    """Common options of train, pretrain and finetune."""

    run: Annotated[Path | None, Parameter(help=RUN_HELP, converter=run_path)] = None
    fresh: Annotated[bool, Parameter(help="Start over: remove the files of an earlier training.")] = False
    accept_changes: Annotated[bool, Parameter(help=ACCEPT_HELP)] = False
    plugin: Plugins = ()
    quiet: Quiet = False


def train(recipe: RecipeName, /, *, options: TrainOptions = TrainOptions()) -> None:
    """Train a recipe; run the same command again to resume."""
    _train(recipe, options)


def _train(recipe: str, options: TrainOptions, init_from: str | None = None) -> None:
    """Train a recipe, or fine-tune a pretrained run.

    init_from   folder of the pretrained run; "": the run named in the recipe; None: no fine-tuning
    """
    plugins = load_plugins(options.plugin)
    made = load_recipe(recipe, {"train.init_from": init_from} if init_from else {})
    if init_from is not None and not made.train.init_from:
        found = find_runs()
        more = f"Runs here: {', '.join(found[:6])}." if found else "Make one: sciformer pretrain RECIPE."
        raise UserError("finetune needs a pretrained run", hint=f"Name it with --from RUN. {more}", key="--from")
    run = Path(recipe) if options.run is None and Path(recipe).is_dir() else options.run
    from ..run import train as train_run
    from .show import show_run

    fresh, accept, show = options.fresh, options.accept_changes, not options.quiet
    done = train_run(made, run, fresh=fresh, accept_changes=accept, plugins=plugins, show=show)
    if rank() == 0:
        show_run(done, console())


app.command(train, sort_key=4, help_epilogue=TRAIN_HELP)
app.command(
    train,
    name="pretrain",
    sort_key=4.1,
    help="Train a model to fine-tune later; the same as `train`.",
    help_epilogue=TRAIN_HELP,
)


@app.command(sort_key=4.2, help_epilogue=TRAIN_HELP)
def finetune(
    recipe: RecipeName,
    /,
    *,
    from_: Annotated[Path | None, Parameter(name="--from", converter=run_path)] = None,
    options: TrainOptions = TrainOptions(),
) -> None:
    """Fine-tune: train a recipe from the weights of another run.

    Embedding and trunk are copied from the other run; heads are copied if the objective is the same. The new run also
    takes the vocabulary and all keys of `tokens` and `model` that neither the recipe nor the command line sets. With
    `--train.freeze` only the heads are trained. `--train.layer_decay 0.9` lowers the learning rate of lower blocks;
    `--train.head_lr_scale 10` raises the learning rate of the heads. The new run does not need the other run
    afterwards. Run the same command again to resume.

    Parameters
    ----------
    from_
        Folder of the pretrained run; sets the recipe key train.init_from.
    """
    _train(recipe, options, str(from_ or ""))


@app.command(sort_key=5, help_epilogue=TRAIN_HELP, usage="Usage: sciformer compare [OPTIONS] RECIPE [RECIPE ...]")
def compare(
    recipe: Annotated[
        tuple[str, ...], Parameter(help="One recipe or several: names from `sciformer recipes`, or .yaml files.")
    ],
    /,
    *,
    rivals: bool = False,
    seeds: int = 3,
    run: RunFolder = Path("runs/compare"),
    grid: tuple[str, ...] = (),
    labels: str = "",
    folds: int | None = None,
    plugin: Plugins = (),
    quiet: Quiet = False,
) -> None:
    """Train several recipes with several seeds and compare their scores.

    With one recipe, its model, tokens or objective can be changed; the changed recipe is compared with the original:
    `sciformer compare my.yaml --model.trunk gru`. Changes of `data` and `train` apply to both.

    Parameters
    ----------
    rivals
        Compare one recipe with the other models of its field: shipped recipes with your data, tokens, objective and
        training, one for each trunk.
    seeds
        Number of seeds: 0, 1, 2, ... (default: 3).
    run
        Folder of all runs (default: runs/compare).
    grid
        Values to try for a key: `--grid train.learning_rate=1e-3,3e-4`. The value with the best validation score is
        compared.
    labels
        Numbers of labels per class to train with: `--labels 20,100,all` (data.labels_per_class). Each number has its
        own rows, verdict and point in the figure.
    folds
        Number of folds for cross-validation (data.split.folds). `{fold}` in train.init_from is replaced by the number
        of the fold: --train.init_from runs/pretrained-{fold}.
    """
    plugins = load_plugins(plugin)
    made = _load_compared(recipe, rivals)
    from ..comparison.compare import compare as compare_recipes
    from ..comparison.compare import show_comparison
    from ..comparison.plan import parse_grid, parse_labels

    points, few = parse_grid(list(grid)), parse_labels(labels)
    show, on_progress = not quiet, None if quiet else log
    found = compare_recipes(
        made, seeds, run, points, labels=few, folds=folds, plugins=plugins, show=show, log=on_progress
    )
    if rank() == 0:
        show_comparison(found, console())
    if found.failed:
        raise SystemExit(2)


def _load_compared(names: tuple[str, ...], rivals: bool) -> list[Recipe]:
    """Recipes to compare: a single recipe with its rivals or with a changed copy."""
    from ..comparison.rivals import changed_rival, split_changes
    from ..comparison.rivals import rivals as rivals_of

    if rivals:
        if len(names) != 1:
            raise UserError(f"--rivals needs exactly one recipe, not {len(names)}", key="--rivals")
        mine = load_recipe(names[0])
        return [mine, *rivals_of(mine, log)]
    _, own = split_changes(RECIPE_CHANGES)
    if len(names) != 1 or not own:
        return load_recipes(names)
    mine = load_recipe(names[0], without=own)
    return [mine, changed_rival(mine, load_recipe(names[0]), own)]
