"""Transformers as scikit-learn estimators.

    from sciformer.sklearn import TransformerClassifier

    model = TransformerClassifier(steps=300).fit(X, y)
    model.predict(X), model.predict_proba(X), model.score(X, y)
    cross_val_score(TransformerClassifier("jets/part"), frame, y)

Without a recipe, X is an array (n, values) or images (n, height, width[, channels]), or a list of texts. With a recipe,
X is any table in memory that its reader understands: a data frame, a mapping of columns, an awkward array. The columns
of an array are not scaled, as in all of scikit-learn: put a StandardScaler before the estimator if their units differ.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from .errors import UserError
from .evaluation.embed import embed
from .files.formats.frames import has_own_type
from .files.in_memory import MemoryFile, is_text
from .files.packages import require
from .recipe import Recipe
from .recipe.estimator import Purpose, Starter, choose_recipe
from .run import Run, train

require("sklearn", "the estimators of sciformer.sklearn")

from sklearn.base import (  # noqa: E402
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.utils import check_random_state, column_or_1d  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import assert_all_finite, check_consistent_length, validate_data  # noqa: E402

LABEL, TARGET, WEIGHT = "label", "value_to_predict", "sample_weight"  # names of the columns that are added to X
MIN_VALIDATION_SAMPLES = 40  # fewer samples are all used for training
NOT_PICKLED = ("checkpoints", "report.html", "metrics.jsonl", "lock")  # parts of a run folder


class _Transformer(BaseEstimator):  # type: ignore[misc]
    """Base class: parameters, the run, and tables from X.

    recipe         name or path of a recipe, or a `Recipe` (default: a small model for the form of X)
    changes        values of recipe keys, such as {"model.heads": 8} (default: none)
    steps          training steps (default: as in the recipe)
    learning_rate  largest learning rate (default: as in the recipe)
    dim            width of the model (default: as in the recipe)
    depth          number of blocks (default: as in the recipe)
    validation     share of the samples that chooses the best model (default: 0.1; none below 40 samples)
    random_state   seed of weights, order and validation samples (default: 0)
    run            run folder (default: a temporary folder, removed with the estimator)
    warm_start     resume an interrupted training in `run`, instead of starting anew (default: False)
    accept_drift   predict samples on another scale than the training, with a warning (default: True)
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

    def _train(self, samples: Any, more: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
        """Train on the columns of X and `more` columns."""
        starter = self._starter(samples)
        table = {**starter.columns(samples), **more}
        count = len(next(iter(table.values())))
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
                "data.split.valid": self.validation if count >= MIN_VALIDATION_SAMPLES else 0.0,
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
        """Recipe and columns for the form of X; a table for a given recipe keeps its columns."""
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
        """Arrays of numbers, checked by scikit-learn; texts and other tables as they are."""
        self._check_samples(samples)
        if _is_table(samples) and (self.recipe is not None or not _has_only_numbers(samples)):
            return samples
        if _is_texts(samples):
            return np.asarray(samples, str)
        least = 2 if fitting else 1
        return validate_data(self, samples, reset=fitting, dtype="numeric", allow_nd=True, ensure_min_samples=least)

    def _checked(self, y: Any) -> Any:
        """The column y, without missing values."""
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
        with _notes_as_warnings():
            found: dict[str, Any] = self.run_.predict(table, accept_drift=self.accept_drift)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """State with the files of the model, so that a pickle is complete."""
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


class TransformerClassifier(ClassifierMixin, _Transformer):  # type: ignore[misc]
    """Transformer that predicts classes.

    classes_   sorted classes of y
    run_       the trained `Run`: `run_.report()`, `run_.model`

    """

    purpose = "classify"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on samples X and their classes y.

        sample_weight  weight of each sample in the loss (default: 1)
        """
        samples, y = self._validated(X, fitting=True), self._checked(y)
        check_classification_targets(y)
        _check_lengths(samples, y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise UserError(f"y has one class, {self.classes_[0]}, but a classifier needs two classes", key="y")
        self._names = _distinct_names(self.classes_)
        more, changes = {LABEL: np.array(self._names)[codes]}, {"objective.label": LABEL}
        if sample_weight is not None:
            more[WEIGHT] = np.asarray(sample_weight, np.float64)
            check_consistent_length(y, more[WEIGHT])
            if not more[WEIGHT].any():
                raise UserError("sample_weight has only zeros", key="sample_weight")
            changes["objective.weight"] = WEIGHT
        self._train(samples, more, changes)
        return self

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, classes), in the order of `classes_`."""
        return self._class_columns(X, "probabilities")

    def predict(self, X: Any) -> Any:
        """Most probable class of each sample."""
        most_probable = self.predict_proba(X).argmax(1)
        return self.classes_[most_probable]

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithm of the probabilities (n, classes)."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def _class_columns(self, samples: Any, name: str) -> Any:
        """Probabilities of all classes; 0 for a class that only the validation samples had."""
        found = self._predict(samples)[name].astype(np.float64)
        places = {name: i for i, name in enumerate(self.run_.classes)}
        known = [i for i, name in enumerate(self._names) if name in places]
        made = np.zeros((len(found), len(self._names)))
        made[:, known] = found[:, [places[self._names[i]] for i in known]]
        return made / made.sum(1, keepdims=True)


class TransformerRegressor(RegressorMixin, _Transformer):  # type: ignore[misc]
    """Transformer that predicts a number, with its uncertainty.

    run_   the trained `Run`: `run_.report()`, `run_.model`
    """

    purpose = "regress"

    def fit(self, X: Any, y: Any) -> Self:
        """Train on samples X and their values y."""
        samples = self._validated(X, fitting=True)
        y = self._checked(y).astype(np.float64)
        _check_lengths(samples, y)
        self._train(samples, {TARGET: y}, {"objective": {"kind": "regress", "targets": [TARGET]}})
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted values (n,), and their standard deviations if `return_std` is true."""
        found = self._predict(X)
        mean = found["mean"].reshape(-1).astype(np.float64)
        return (mean, found["std"].reshape(-1).astype(np.float64)) if return_std else mean


class TransformerEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Transformer):  # type: ignore[misc]
    """Transformer that turns samples into vectors, trained without labels.

    The default recipes hide a part of each sample and predict it from the rest. Any other recipe works too, also the
    folder of a trained run: `TransformerEmbedder(recipe="runs/bert")` is fitted without training.

    run_   the trained `Run`
    """

    purpose = "embed"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # vectors are in single precision
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on samples X; y is ignored."""
        samples = self._validated(X, fitting=True)
        if isinstance(self.recipe, str | Path) and (Path(self.recipe) / "run.json").exists():
            self.run_, self._starter_ = Run(self.recipe), self._starter(samples)
        else:
            self._train(samples, {}, {})
        self._n_features_out = self.run_.model.dim
        return self

    def transform(self, X: Any) -> Any:
        """Vectors (n, dim) of samples."""
        table = self._table(X)
        with _notes_as_warnings():
            return embed(self.run_, table, accept_drift=self.accept_drift).vectors


def columns_of_table(samples: Any) -> dict[str, Any]:
    """Columns of a table in memory."""
    return dict(MemoryFile(samples).columns)


def _is_table(samples: Any) -> bool:
    """Whether samples have columns with names: a frame, a mapping, an awkward array, or a list of mappings."""
    if isinstance(samples, list | tuple):
        return bool(samples) and (isinstance(samples[0], Mapping) or hasattr(samples[0], "fields"))
    return has_own_type(samples) or isinstance(samples, Mapping) or hasattr(samples, "fields")


def _has_only_numbers(table: Any) -> bool:
    """Whether every column of a frame has one number for each sample, so that the frame is an array."""
    if isinstance(table, Mapping | list | tuple) or not hasattr(table, "iloc"):
        return False
    columns = MemoryFile(table).columns.values() if len(table) else ()
    return all(isinstance(one, np.ndarray) and one.ndim == 1 and one.dtype.kind in "biuf" for one in columns)


def _is_texts(samples: Any) -> bool:
    if isinstance(samples, list | tuple):
        return bool(samples) and all(isinstance(one, str) for one in samples)
    return isinstance(samples, np.ndarray) and is_text(samples)


def _check_lengths(samples: Any, y: Any) -> None:
    count = len(next(iter(samples.values()))) if isinstance(samples, Mapping) else len(samples)
    if count != len(y):
        raise UserError(f"X has {count} samples, but y has {len(y)}: inconsistent numbers of samples", key="y")


def _distinct_names(classes: Any) -> list[str]:
    """Names of the classes, as strings; numbered if two classes have the same string."""
    names = [str(one) for one in classes.tolist()]
    return names if len(set(names)) == len(names) else [f"{i} {name}" for i, name in enumerate(names)]


@contextmanager
def _notes_as_warnings() -> Iterator[None]:
    """Show notes on data unlike the training data as warnings at the caller."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        yield
    for note in notes:
        warnings.warn(str(note.message), note.category, stacklevel=4)
