"""Estimators: a classifier, a regressor and an embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from ..errors import UserError
from ..evaluation.embed import embed
from ..run import Run
from .base import Transformer, check_every_row, count_rows, notes_as_warnings

LABEL, TARGET, WEIGHT = "label", "value_to_predict", "sample_weight"  # names of the columns that are added to X


class TransformerClassifier(ClassifierMixin, Transformer):
    """Transformer as a scikit-learn classifier.

    classes_   sorted classes of y
    run_       the trained `Run`: `run_.report()`, `run_.model`
    """

    purpose = "classify"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on samples X and classes y.

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
        self._train(samples, more, changes, smallest=int(np.bincount(codes).min()))
        return self

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, classes), in the order of `classes_`."""
        found = self._predict(X)["probabilities"].astype(np.float64)
        places = [self.run_.classes.index(name) for name in self._names]
        return found[:, places] / found.sum(1, keepdims=True)

    def predict(self, X: Any) -> Any:
        """Most probable class of each sample."""
        most_probable = self.predict_proba(X).argmax(1)
        return self.classes_[most_probable]

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithm of the probabilities (n, classes)."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))


class TransformerRegressor(RegressorMixin, Transformer):
    """Transformer regressor: predicts a number and its uncertainty.

    run_   the trained `Run`: `run_.report()`, `run_.model`
    """

    purpose = "regress"

    def fit(self, X: Any, y: Any) -> Self:
        """Train on samples X and values y."""
        samples = self._validated(X, fitting=True)
        y = self._checked(y).astype(np.float64)
        _check_lengths(samples, y)
        self._train(samples, {TARGET: y}, {"objective": {"kind": "regress", "targets": [TARGET]}})
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted values (n,); with `return_std` also the standard deviations (n,)."""
        found = self._predict(X)
        mean = found["mean"].reshape(-1).astype(np.float64)
        return (mean, found["std"].reshape(-1).astype(np.float64)) if return_std else mean


class TransformerEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Transformer):
    """Embedder: a transformer from samples to vectors, trained without labels.

    The default recipes hide a part of each sample and predict it from the rest. Other recipes work too, also the folder
    of a trained run: `TransformerEmbedder(recipe="runs/bert")` is fitted without training.

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
        """Vectors (n, dim) of the samples."""
        table = self._table(X)
        with notes_as_warnings():
            vectors = embed(self.run_, table, accept_drift=self.accept_drift).vectors
        check_every_row(table, len(vectors))
        return vectors


def _check_lengths(samples: Any, y: Any) -> None:
    count = count_rows(samples)
    if count != len(y):
        raise UserError(f"X has {count} samples, but y has {len(y)}: inconsistent numbers of samples", key="y")


def _distinct_names(classes: Any) -> list[str]:
    """Class names as strings; if two strings are equal, every string gets a number."""
    names = [str(one) for one in classes.tolist()]
    return names if len(set(names)) == len(names) else [f"{i} {name}" for i, name in enumerate(names)]
