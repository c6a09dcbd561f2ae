"""Functions of `import sciformer as sf`: a function for each command.

A run is a `Run` or the path of its folder; a recipe is a `Recipe`, a path, or the name of a shipped recipe. `data` is a
table in memory (see `train`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..recipe import Recipe
from ..run import Run, train

if TYPE_CHECKING:
    from ..checks.check import Checked
    from ..comparison.statistics import Comparison
    from ..evaluation.embed import Embedded
    from ..evaluation.evaluate import Evaluation
    from ..recipe.plugin import Plugin

AnyRun = Run | str | Path
AnyRecipe = Recipe | str | Path


def _run(run: AnyRun) -> Run:
    return run if isinstance(run, Run) else Run(run)


def _recipe(recipe: AnyRecipe, data: Any = None, valid: Any = None, test: Any = None, parts: str = "") -> Recipe:
    made = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe)
    return made if data is None else made.with_tables(data, valid, test, parts)


pretrain = train  # a model to fine-tune later


def finetune(
    recipe: AnyRecipe,
    run: str | Path | None = None,
    *,
    source: AnyRun,
    data: Any = None,
    valid: Any = None,
    test: Any = None,
    parts: str = "",
    fresh: bool = False,
    accept_changes: bool = False,
    plugins: Sequence[Plugin] = (),
    show: bool = True,
    report: bool = True,
) -> Run:
    """Train a recipe from the weights of another run.

    source   pretrained run; the other arguments are as in `train`
    """
    path = source.path if isinstance(source, Run) else Path(source)
    made = _recipe(recipe, data, valid, test, parts).change({"train.init_from": str(path)})
    more: dict[str, Any] = {"fresh": fresh, "accept_changes": accept_changes, "plugins": plugins}
    return train(made, run, show=show, report=report, **more)


def predict(
    run: AnyRun, what: Any, *, accept_drift: bool = False, logits: bool = False, intervals: bool = False
) -> Any:
    """Predictions for a table in memory or for files (see `Run.predict`)."""
    return _run(run).predict(what, accept_drift, logits=logits, intervals=intervals)


def evaluate(
    run: AnyRun,
    data: Any = None,
    *,
    part: str = "test",
    files: Sequence[str | Path] = (),
    limit: int | None = None,
    accept_drift: bool = False,
) -> Evaluation:
    """Scores of a run on a table in memory, on files, or on a part of the run's data."""
    return _run(run).evaluate(part, files, limit, accept_drift, data=data)


def embed(
    run: AnyRun, what: Any, *, pool: str = "model", unit: bool = False, stream: str = "", accept_drift: bool = False
) -> Embedded:
    """Embedding vectors of the samples in a table in memory or in files.

    pool     pooling of tokens: mean, max, last, class_token, or model (default: the pooling of the model)
    unit     scale vectors to length 1
    stream   stream of tokens to pool (default: the stream of the objective)
    """
    from ..evaluation.embed import embed as embed_samples

    return embed_samples(_run(run), what, pool, unit, stream=stream, accept_drift=accept_drift)


def generate(
    run: AnyRun,
    prompt: str | None = None,
    length: int = 500,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: str | Sequence[str] = (),
    beam: int = 1,
    seed: int | None = None,
) -> str:
    """Continue a prompt; return the new text, without the prompt.

    length        maximum number of tokens
    temperature   divides the logits (default: 1); 0 takes the most likely token
    top_k         number of most likely tokens to choose from (default: all)
    top_p         nucleus sampling: choose from the most likely tokens with this total probability (default: all)
    stop          strings that end the text
    beam          number of hypotheses of a beam search (default: 1, which means sampling)
    seed          seed of the random numbers (default: a new seed in each call)
    """
    from ..generation.generate import generate as generate_text

    choices: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    return "".join(generate_text(_run(run), prompt, length, stop=stop, beam=beam, seed=seed, **choices))


def translate(run: AnyRun, what: Any, *, beam: int | None = None, penalty: float | None = None) -> list[str]:
    """Translate texts, or write captions for samples such as images, in order.

    what      list of texts; for sources that are not text: files, an array or a table
    beam      number of hypotheses (default: `objective.beam` of the recipe)
    penalty   length penalty (default: `objective.penalty` of the recipe)
    """
    from ..generation.translate import check_list

    check_list(what)
    return _run(run).translate(what, beam=beam, penalty=penalty)


def new(
    kind: str,
    files: Sequence[str | Path] = (),
    out: str | Path | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a recipe with comments for files of a kind, such as `jets`.

    out         .yaml file to write (default: named after the first file, in the current folder)
    changes     values of recipe keys; all other keys are guessed from the files and these values
    overwrite   replace an existing recipe
    """
    from ..recipe.new import new as write_recipe

    return write_recipe(kind, files, out, changes=changes, overwrite=overwrite)


def check(
    recipe: AnyRecipe,
    *,
    data: Any = None,
    valid: Any = None,
    test: Any = None,
    parts: str = "",
    deep: bool = False,
    plugins: Sequence[Plugin] = (),
) -> Checked:
    """Check a recipe before a long training; problems are collected, not raised.

    deep      check all samples (default: only the first 2048 of each part)
    plugins   loaded plugins, whose kinds of tokens are tested
    """
    from ..checks.check import check as check_recipe

    if data is None:
        return check_recipe(recipe, plugins, deep)
    return check_recipe(_recipe(recipe, data, valid, test, parts), plugins, deep)


def compare(
    recipes: Sequence[AnyRecipe],
    seeds: int | Sequence[int] = 3,
    run: str | Path = "runs/compare",
    *,
    data: Any = None,
    valid: Any = None,
    test: Any = None,
    parts: str = "",
    grid: Mapping[str, Sequence[Any]] | None = None,
    labels: Sequence[int | None] = (),
    folds: int | None = None,
    plugins: Sequence[Plugin] = (),
    show: bool = True,
    report: bool = True,
) -> Comparison:
    """Train recipes with several seeds on the same samples; compare test scores.

    seeds    number of seeds (0, 1, 2, ...), or a list of seeds
    run      folder of all runs
    grid     values to try for keys: {"train.learning_rate": [1e-3, 3e-4]}
    labels   numbers of labels per class to train on; None means all labels
    folds    number of folds of a cross-validation
    show     print the progress of each run
    report   also write the report of each run
    """
    from ..comparison.compare import compare as compare_recipes

    if isinstance(recipes, (str, Path, Recipe)):
        raise UserError("the recipes to compare must be a list", hint="Write [first, second].")
    made = [_recipe(recipe, data, valid, test, parts) for recipe in recipes]
    more: dict[str, Any] = {"labels": labels, "folds": folds, "plugins": plugins}
    return compare_recipes(made, seeds, run, grid, show=show, report=report, **more)


def inspect(run: AnyRun, out: str | Path | None = None, *, samples: int = 3, part: str = "") -> list[Path]:
    """Draw attention maps and attributions of a run; return the paths of the figures.

    out       folder of the figures (default: `inspect` in the run folder)
    samples   number of samples to draw
    part      part of the data (default: test, else valid)
    """
    from ..inspection.report.figures import inspect_run

    opened = _run(run)
    return inspect_run(opened, opened.path / "inspect" if out is None else out, samples, part)


def report(run: AnyRun) -> Path:
    """Write the report of a run, `report.html`; return its path."""
    return _run(run).report()


def export(
    run: AnyRun, out: str | Path, format: str = "", *, overwrite: bool = False, stream: str = "", raw: bool = False
) -> list[str]:
    """Export the best model of a run to a folder; return notes.

    format      huggingface or onnx (default: the first format that supports the tokens of the run)
    overwrite   replace an earlier export in the folder
    stream      stream whose encoder is written, if each stream has an encoder; only for onnx
    raw         put the preprocessing into model.onnx, which then takes raw samples; only for onnx
    """
    from ..interop.export import export_model

    return export_model(_run(run), out, format, overwrite, stream, raw)


def import_model(source: str | Path, run: str | Path, changes: Mapping[str, Any] | None = None) -> Run:
    """Import a model of another library as a new run, from a folder or weight file.

    changes   changes of the recipe, such as {"model.heads": 8}
    """
    from ..interop.importing import import_model as import_as_run

    return import_as_run(source, run, changes)
