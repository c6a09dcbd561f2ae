"""Objective `discriminate`: classification with background rejection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from ...data.columns import Array
from ...data.dataset import Dataset
from ...errors import UserError, nearest, one_of
from ...metrics import AtLeast
from ...metrics.bootstrap import TOO_FEW
from ...objectives.base import Rows, ScoreGroup
from ...objectives.classify import Classify
from .rejection import MIN_SPECTRUM_SAMPLES, Rejection, Sculpting, log_odds, rejection, sculpting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REJECTION_PREFIX = "rejection_"  # prefix of the names of rejection scores
MAX_SHOWN_REJECTIONS = 2  # rejections in the summary line of an evaluation


class Discriminate(Classify):
    """Classification with background rejection as a metric; same loss as `classify`."""

    neutral_keys: ClassVar[tuple[str, ...]] = (*Classify.neutral_keys, "spectrum")

    background: str = ""
    """Background class (default: none). Adds scores such as rejection_50 = 1 / (background efficiency) at 50 % signal
    efficiency, with a cut on p_signal / (p_signal + p_background)."""
    efficiencies: dict[str, float | list[float]] = Field(default_factory=dict)
    """Signal efficiencies for the background rejection: {NAME: 0.99} or {NAME: [0.3, 0.5]}, with the signal class NAME
    (default: 0.5; with two classes 0.3 and 0.5)."""
    spectrum: str = ""
    """Column of samples, such as the jet mass (default: none). The report shows the background spectrum of this column
    before and after cuts."""

    @property
    def required_columns(self) -> tuple[str, ...]:
        return (*super().required_columns, *([self.spectrum] if self.spectrum else []))

    @property
    def head_kind(self) -> str:
        return "classify"

    def fit(self, train: Dataset) -> None:
        super().fit(train)
        self._check_rejections()
        if self.spectrum:
            column = train.sample_column(self.spectrum)
            if column.ndim != 1 or column.dtype.kind not in "biuf":
                kind = f"{column.dtype} of shape {column.shape}"
                message = f"column `{self.spectrum}` must have one number per sample, but is {kind}"
                raise UserError(message, key="objective.spectrum")

    def _check_rejections(self) -> None:
        if not self.background:
            if self.efficiencies or self.spectrum:
                key = "efficiencies" if self.efficiencies else "spectrum"
                message = f"objective.{key} is set, but objective.background (the class to reject) is missing"
                raise UserError(message, key="objective.background")
            return
        one_of("objective.background", self.background, self.classes)
        for name in self.efficiencies:
            if name not in self.signals:
                raise UserError(
                    f"objective.efficiencies names {name!r}, which is not a signal class",
                    hint=f"{nearest(name, self.signals)} For the defaults: --objective.efficiencies {{}}",
                    key="objective.efficiencies",
                )
            for share in self.kept(name):
                if not 0 < share <= 1:
                    message = f"the efficiency of {name} in objective.efficiencies is {share:g}, not between 0 and 1"
                    raise UserError(message, hint="Write 50 % as 0.5.", key="objective.efficiencies")

    def kept(self, name: str) -> list[float]:
        """Signal efficiencies for the background rejection of a signal class."""
        shares = self.efficiencies.get(name, [0.3, 0.5] if len(self.classes) == 2 else 0.5)
        return shares if isinstance(shares, list) else [shares]

    @property
    def signals(self) -> list[str]:
        """Signal classes: all classes except the background; empty without a background."""
        return [name for name in self.classes if name != self.background] if self.background else []

    @property
    def measured(self) -> list[str]:
        return super().measured + [title for title, *_ in self._working_points()]

    def _working_points(self) -> list[tuple[str, str, float]]:
        """Name of each rejection metric, with its signal class and signal efficiency."""
        found = []
        for name in self.signals:
            after = f"_{name}" if len(self.classes) > 2 else ""
            found += [(f"{REJECTION_PREFIX}{100 * share:.6g}{after}", name, share) for share in self.kept(name)]
        return found

    def _rejections(self, outputs: Mapping[str, Array]) -> dict[str, tuple[str, float, Rejection]]:
        """Signal class, requested efficiency and rejection, by the name of the metric."""
        pair, place = (outputs["probabilities"], outputs["label"]), self.classes.index
        return {
            title: (name, share, rejection(*pair, place(name), place(self.background), share))
            for title, name, share in self._working_points()
        }

    def score(self, outputs: Mapping[str, Array]) -> dict[str, float]:
        """Classification metrics and rejections; a lower bound has the type `AtLeast`."""
        found = self._rejections(outputs)
        return super().score(outputs) | {
            title: AtLeast(one.value) if one.bound else one.value for title, (_, _, one) in found.items()
        }

    def details(self, outputs: Mapping[str, Array], samples: Mapping[str, Array] | None = None) -> dict[str, Rows]:
        """Tables of the classes and of the rejections, by class and efficiency."""
        rows: Rows = []
        spectrum = None if samples is None else samples.get(self.spectrum)
        for name, share, one in self._rejections(outputs).values():
            row: dict[str, Any] = {"class": name, "kept": f"{100 * share:.6g} %", "rejection": str(one)}
            row |= {f"{self.background} left": one.left, "cut": f"{one.cut:.6g}"}
            if spectrum is not None and np.isfinite(one.value):
                found = self.sculpted(outputs, spectrum, name, one.odds)
                words = [f"{value:.3f}" for value in (found.divergence, found.chance)]
                if found.passed < MIN_SPECTRUM_SAMPLES:
                    words = [TOO_FEW, "–"]
                row |= dict(zip((f"change of {self.spectrum}", "by chance"), words))
            rows.append(row)
        tables = super().details(outputs, samples)
        return {**tables, f"Rejection of {self.background}": rows} if rows else tables

    def sculpted(self, outputs: Mapping[str, Array], column: Array, name: str, least: float) -> Sculpting:
        """Sculpting of the background spectrum of a column by a cut.

        The cut selects samples with ln(p_S / p_B) >= `least`, for the signal class `name`.
        """
        background = self.classes.index(self.background)
        mine = (outputs["label"] == background) & np.isfinite(column)
        score = log_odds(outputs["probabilities"][mine], self.classes.index(name), background)
        return sculpting(column[mine], score >= least)

    # Display of rejections

    def lower_is_better(self, name: str) -> bool:
        return not _is_rejection(name) and super().lower_is_better(name)

    def headline(self, names: Iterable[str]) -> list[str]:
        """Names of the scores in the one-line summary.

        Rejections are left out if there are more than MAX_SHOWN_REJECTIONS.
        """
        shown = super().headline(names)
        hidden = [name for name in shown if _is_rejection(name)]
        return shown if len(hidden) <= MAX_SHOWN_REJECTIONS else [name for name in shown if name not in hidden]

    def score_groups(self, names: Iterable[str]) -> list[ScoreGroup]:
        own = [name for name in names if _is_rejection(name)]
        found = {name: name.removeprefix(REJECTION_PREFIX).replace("_", " % of ", 1) for name in own}
        return [*super().score_groups(names), ScoreGroup("rejection", "Rejections", found)]

    def figures(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, Callable[[], Figure]]:
        from .rejection_plots import rejection_figures  # matplotlib takes a second to import

        return super().figures(outputs, samples) | rejection_figures(self, outputs, samples)

    def summarises_by_median(self, name: str) -> bool:
        """Whether a metric is a rejection: outliers would dominate its mean over runs."""
        return _is_rejection(name)

    def summary_note(self, names: Iterable[str]) -> str:
        if not any(map(_is_rejection, names)):
            return ""
        return "Rejections: median over the seeds; ≥ if no background passed the cut in a run."


def _is_rejection(name: str) -> bool:
    return name.startswith(REJECTION_PREFIX)
