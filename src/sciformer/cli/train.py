"""Verbs that lead to a trained model: recipes, new, check, train, pretrain, finetune, compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import UserError
from ..recipe.field import places
from .app import (
    CHANGES_HELP,
    EXIT_STATUS_HELP,
    Accepted,
    Fresh,
    Into,
    Overwrite,
    Plugins,
    Quiet,
    RecipeName,
    app,
    load_plugins,
    load_recipe,
    load_recipes,
)
from .terminal import console, find_runs, log, no_changes, rank

TRAIN_HELP = f"{CHANGES_HELP}\n\n{EXIT_STATUS_HELP}"
KIND_HELP = f"What the files hold: {', '.join(places('new'))}. Not needed where names say it, as those of pictures do."


@app.command(sort_key=1, help_epilogue="")
def recipes(name: str | None = None, /) -> None:
    """List what can be run, with paper, data and measured score; or all keys of one recipe, with their meaning.

    Parameters
    ----------
    name
        A recipe: its keys, values and meanings are printed, ready to be saved as a file of your own.
    """
    from .show import show_recipes

    if name is None:
        no_changes("Name a recipe to change.")
        show_recipes(console())
    else:
        print(load_recipe(name).to_yaml(), end="")


@app.command(sort_key=2, help_epilogue="")
def new(
    kind: Annotated[str, Parameter(help=KIND_HELP)],
    files: tuple[str, ...] = (),
    /,
    *,
    out: Path | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a recipe for your own files: columns found, sizes guessed, every guess explained.

    Parameters
    ----------
    files
        Their names, or those of folders; most may have their class before them, QCD:qcd.root.
    out
        Where to write the recipe; here, named after the first file, unless given.
    """
    no_changes("Change the recipe when it is written.")
    from ..recipe.new import new as write_recipe

    path = write_recipe(kind, list(files), out, overwrite=overwrite)
    if getattr(load_recipe(str(path)).data, "bad_files", "") == "skip":
        print(f"some files cannot be read and are left out: the head of {path} names them")
    print(f"wrote {path}\nnext: sciformer check {path}\n      sciformer train {path}")


@app.command(sort_key=3, help_epilogue=CHANGES_HELP)
def check(recipe: RecipeName, /, *, plugin: Plugins = (), deep: bool = False) -> None:
    """Try a recipe before a long run: keys, files, tokens, one step, memory and time.

    Parameters
    ----------
    deep
        Read every file to its end.
    """
    plugins = load_plugins(plugin)
    made = load_recipe(recipe)
    from ..check.check import check as check_recipe
    from ..check.check import show_check

    checked = check_recipe(made, plugins, deep=deep, log=log)
    if rank() == 0:
        show_check(checked, console())
    if checked.problems:
        raise SystemExit(2)


def train(
    recipe: RecipeName,
    /,
    *,
    run: Into = None,
    fresh: Fresh = False,
    accept_changes: Accepted = False,
    plugin: Plugins = (),
    quiet: Quiet = False,
    init_from: Annotated[Path | str | None, Parameter(parse=False)] = None,
) -> None:
    """Train a recipe; the same command again resumes."""
    # Only `finetune` gives init_from: a folder, or "" where the recipe must name it.
    plugins = load_plugins(plugin)
    made = load_recipe(recipe, {"train.init_from": str(init_from)} if init_from else {})
    if init_from is not None and not made.train.init_from:
        found = find_runs()
        more = f"Runs here: {', '.join(found[:6])}." if found else "Make one: sciformer pretrain RECIPE."
        raise UserError("a run to begin with is missing", hint=f"Name it with --from RUN. {more}", key="--from")
    if run is None and Path(recipe).is_dir():
        run = Path(recipe)
    from ..run import train as train_run
    from .show import show_run

    done = train_run(made, run, fresh=fresh, accept_changes=accept_changes, plugins=plugins, show=not quiet)
    if rank() == 0:
        show_run(done, console())


app.command(train, sort_key=4, help_epilogue=TRAIN_HELP)
app.command(
    train,
    name="pretrain",
    sort_key=4.1,
    help="Train on plenty of data what `finetune` then begins with: `train` under another name.",
    help_epilogue=TRAIN_HELP,
)


@app.command(sort_key=4.2, help_epilogue=TRAIN_HELP)
def finetune(
    recipe: RecipeName,
    /,
    *,
    from_: Annotated[Path | None, Parameter(name="--from")] = None,
    run: Into = None,
    fresh: Fresh = False,
    accept_changes: Accepted = False,
    plugin: Plugins = (),
    quiet: Quiet = False,
) -> None:
    """Train a recipe that begins with the weights of another run; the same command again resumes.

    Embedding and trunk are taken from the other run, heads only where the question is the same. So are its vocabulary,
    and all keys of `tokens` and `model` that neither the recipe nor the command line gives: their sizes need not be
    repeated. With `--train.freeze` only the heads learn; `--train.layer_decay 0.9` lets lower blocks learn more slowly,
    `--train.head_lr_scale 10` the heads faster. The new run is whole in itself: the other one may be deleted later.

    Parameters
    ----------
    from_
        Folder of the run to begin with: that of `pretrain`, say. It is the key train.init_from of the recipe.
    """
    options = {"run": run, "fresh": fresh, "accept_changes": accept_changes, "plugin": plugin, "quiet": quiet}
    train(recipe, **options, init_from=from_ or "")  # type: ignore[arg-type]


@app.command(sort_key=5, help_epilogue=TRAIN_HELP)
def compare(
    recipe: Annotated[tuple[str, ...], Parameter(help="Names from `sciformer recipes`, or .yaml files.")],
    /,
    *,
    seeds: int = 3,
    run: Path = Path("runs/compare"),
    grid: tuple[str, ...] = (),
    labels: str = "",
    folds: int | None = None,
    plugin: Plugins = (),
    quiet: Quiet = False,
) -> None:
    """Train several recipes with several seeds, and put them into one table with mean and spread.

    Parameters
    ----------
    seeds
        How many seeds: 0, 1, 2, ...; 3 unless given.
    run
        Folder of all these runs; runs/compare unless given.
    grid
        Values to try for a key, `--grid train.learning_rate=1e-3,3e-4`; the best by validation is compared.
    labels
        Train with few labels too: `--labels 20,100,all`, so many of each class (data.labels_per_class), or all there
        are; each number has its rows, its verdict and its place in a picture.
    folds
        Divide the data into so many folds (data.split.folds) and judge each recipe on all of them, one after the other;
        `{fold}` in train.init_from stands for the number of the fold: --train.init_from runs/pretrained-{fold}.
    """
    plugins = load_plugins(plugin)
    made = load_recipes(recipe)
    from ..compare.compare import compare as compare_recipes
    from ..compare.compare import show_comparison
    from ..compare.plan import parse_grid, parse_labels

    points, on_progress = parse_grid(list(grid)), None if quiet else log
    few = parse_labels(labels)
    found = compare_recipes(
        made, seeds, run, points, labels=few, folds=folds, plugins=plugins, show=not quiet, log=on_progress
    )
    if rank() == 0:
        show_comparison(found, console())
    if found.failed:
        raise SystemExit(2)
