"""Base class of the estimators: parameters, run, and tables made from X."""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import (
    BaseEstimator,
)
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import assert_all_finite, validate_data

from ..errors import UserError
from ..files.formats.frames import has_own_type
from ..files.in_memory import MemoryFile, is_text
from ..recipe import Recipe
from ..recipe.estimator import Purpose, Starter, choose_recipe
from ..run import Run, train

MIN_VALIDATION_SAMPLES, MIN_CLASS_SAMPLES = 40, 5  # with fewer samples, all are used for training
NOT_PICKLED = ("checkpoints", "report.html", "metrics.jsonl", "lock")  # parts of a run folder


class Transformer(BaseEstimator):
    """Base class of the estimators: parameters, run, and tables made from X.

    recipe         name or path of a recipe, or a `Recipe` (default: a small model for the form of X)
    changes        values of recipe keys, such as {"model.heads": 8} (default: none)
    steps          training steps (default: as in the recipe)
    learning_rate  largest learning rate (default: as in the recipe)
    dim            width of the model (default: as in the recipe)
    depth          number of blocks (default: as in the recipe)
    validation     share of the samples held out to choose the best model (default: 0.1). With fewer than
                   40 samples, or fewer than 5 samples of a class, no samples are held out
    random_state   seed of weights, order and validation samples (default: 0)
    run            run folder (default: a temporary folder, removed with the estimator)
    warm_start     resume an interrupted training in `run`, instead of starting anew (default: False)
    accept_drift   predict samples whose scale differs from the training data, with a warning (default: True)
    show           show the progress (default: False)
    """

    purpose: ClassVar[Purpose]

    def __init__(
        self,
        recipe: str | Path | Recipe | None = None,
        *,
        changes: Mapping[str, Any] | None = None,
        steps: int | None = None,
        learning_rate: float | None = None,
        dim: int | None = None,
        depth: int | None = None,
        validation: float = 0.1,
        random_state: Any = 0,
        run: str | Path | None = None,
        warm_start: bool = False,
        accept_drift: bool = True,
        show: bool = False,
    ) -> None:
        self.recipe = recipe
        self.changes = changes
        self.steps = steps
        self.learning_rate = learning_rate
        self.dim = dim
        self.depth = depth
        self.validation = validation
        self.random_state = random_state
        self.run = run
        self.warm_start = warm_start
        self.accept_drift = accept_drift
        self.show = show

    def _train(
        self, samples: Any, more: Mapping[str, Any], changes: Mapping[str, Any], smallest: int = 1 << 62
    ) -> None:
        """Train on the columns of X and the additional columns `more`.

        smallest  number of samples of the rarest class
        """
        starter = self._starter(samples)
        table = {**starter.columns(samples), **more}
        count = count_rows(table)
        holds_out = count >= MIN_VALIDATION_SAMPLES and smallest >= MIN_CLASS_SAMPLES
        seed = self._seed()
        values = {
            "train.steps": self.steps,
            "train.learning_rate": self.learning_rate,
            "model.dim": self.dim,
            "model.depth": self.depth,
        }
        if isinstance(self.recipe, Recipe):
            recipe = self.recipe
        else:
            recipe = Recipe.load(self.recipe or starter.recipe, {} if self.recipe else starter.changes)
        recipe = recipe.with_tables(table).change(
            {
                **changes,
                **{key: value for key, value in values.items() if value is not None},
                "train.seed": seed,
                "data.split.seed": seed,
                "data.split.valid": self.validation if holds_out else 0.0,
                "data.split.test": 0.0,
            }
        )
        recipe = recipe.change({"train.batch": min(recipe.train.batch, max(2, count)), **(self.changes or {})})
        folder = self._new_folder() if self.run is None else Path(self.run)
        self.run_ = train(recipe, folder, fresh=not self.warm_start, show=self.show, report=self.run is not None)
        self._starter_ = starter

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _starter(self, samples: Any) -> Starter:
        """Default or given recipe for X, with a function that makes columns from X."""
        if self.recipe is not None and not isinstance(samples, np.ndarray):
            return Starter("", {}, columns_of_table)
        return choose_recipe(samples, self.purpose)

    def _new_folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="sciformer-"))
        self._removal = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder / "run"

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            name = type(self).__name__
            raise NotFittedError(f"This {name} is not fitted yet. Call fit before this method.")
        found: Run = self.run_
        return found

    def _validated(self, samples: Any, fitting: bool = False) -> Any:
        """Let scikit-learn check arrays of numbers; return other samples unchanged."""
        self._check_samples(samples)
        if _is_table(samples) and not count_rows(samples):
            raise UserError("X has no rows", key="X")
        if _is_table(samples) and (self.recipe is not None or not _has_only_numbers(samples)):
            return samples
        if _is_texts(samples):
            return np.asarray(samples, str)
        least = 2 if fitting else 1
        return validate_data(self, samples, reset=fitting, dtype="numeric", allow_nd=True, ensure_min_samples=least)

    def _checked(self, y: Any) -> Any:
        """Return y as a column of shape (n,); refuse missing values."""
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        column = column_or_1d(y, warn=True)
        if column.dtype.kind in "fO":
            assert_all_finite(column, input_name="y", estimator_name=type(self).__name__)
        return column

    def _check_samples(self, samples: Any) -> None:
        if isinstance(samples, str | bytes):
            raise UserError("X is a single text", hint="Put the texts into a list.", key="X")
        if hasattr(samples, "toarray"):
            name = type(self).__name__
            raise TypeError(f"{name} does not support sparse input. Use X.toarray() to convert to a dense array.")

    def _table(self, samples: Any) -> dict[str, Any]:
        self._fitted()
        found: dict[str, Any] = self._starter_.columns(self._validated(samples))
        return found

    def _predict(self, samples: Any) -> dict[str, Any]:
        table = self._table(samples)
        with notes_as_warnings():
            found: dict[str, Any] = self.run_.predict(table, accept_drift=self.accept_drift)
        check_every_row(table, len(next(iter(found.values()))))
        return found

    def __getstate__(self) -> dict[str, Any]:
        """State for a pickle, with the files of the model."""
        state = {key: one for key, one in super().__getstate__().items() if key not in ("run_", "_removal")}
        if hasattr(self, "run_"):
            root = self.run_.path
            names = [path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_file()]
            kept = [name for name in names if name.parts[0] not in NOT_PICKLED]
            state["_files"] = {name.as_posix(): (root / name).read_bytes() for name in kept}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            folder = self._new_folder()
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            self.run_ = Run(folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        return tags


def check_every_row(table: Mapping[str, Any], count: int) -> None:
    """Check that each row of X has one prediction, as scikit-learn expects."""
    rows = count_rows(table)
    if count != rows:
        hint = "Give one row per sample, with observations as lists, and remove data.select from the recipe."
        raise UserError(f"X has {rows} rows, but the recipe makes {count} samples from them", hint=hint, key="X")


def columns_of_table(samples: Any) -> dict[str, Any]:
    """Columns of a table in memory.

    Columns of unsupported types are included, so that the reader can name them in an error.
    """
    contents = MemoryFile(samples).contents
    known = set(samples.keys()) if hasattr(samples, "keys") else set()
    return {**contents.columns, **{name: samples[name] for name in contents.others if name in known}}


def count_rows(samples: Any) -> int:
    """Number of samples of an array, a list or a table."""
    return len(next(iter(samples.values()), ())) if isinstance(samples, Mapping) else len(samples)


def _is_table(samples: Any) -> bool:
    """Whether X is a table: a frame, a mapping, an awkward array, a list of mappings."""
    if isinstance(samples, list | tuple):
        return bool(samples) and (isinstance(samples[0], Mapping) or hasattr(samples[0], "fields"))
    return has_own_type(samples) or isinstance(samples, Mapping) or hasattr(samples, "fields")


def _has_only_numbers(table: Any) -> bool:
    """Whether a frame can become an array: one number per sample in each column."""
    if isinstance(table, Mapping | list | tuple) or not hasattr(table, "iloc"):
        return False
    columns = MemoryFile(table).columns.values() if len(table) else ()
    return all(isinstance(one, np.ndarray) and one.ndim == 1 and one.dtype.kind in "biuf" for one in columns)


def _is_texts(samples: Any) -> bool:
    if isinstance(samples, list | tuple):
        return bool(samples) and all(isinstance(one, str) for one in samples)
    return isinstance(samples, np.ndarray) and is_text(samples)


@contextmanager
def notes_as_warnings() -> Iterator[None]:
    """Context manager: show notes on unfamiliar data as warnings in the caller's code."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        yield
    for note in notes:
        warnings.warn(str(note.message), note.category, stacklevel=4)
