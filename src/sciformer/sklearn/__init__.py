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

from ..files.packages import require

require("sklearn", "the estimators of sciformer.sklearn")

from .estimators import TransformerClassifier, TransformerEmbedder, TransformerRegressor  # noqa: E402

__all__ = ["TransformerClassifier", "TransformerEmbedder", "TransformerRegressor"]
