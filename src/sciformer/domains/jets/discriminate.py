"""Classes of which one is a background: how much of it is rejected where a share of another class is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from ...data.columns import Array
from ...data.dataset import Dataset
from ...errors import UserError, nearest, one_of
from ...metrics import AtLeast
from ...objectives.base import ScoreGroup
from ...objectives.classify import Classify
from .rejection import Rejection, Sculpting, log_odds, rejection, sculpting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REJECTION_PREFIX = "rejection_"  # names of scores begin with this
MAX_SHOWN_REJECTIONS = 2  # in a line about a model that was judged


class Discriminate(Classify):
    """Classify, and measure how much of a background class is rejected; the loss is that of `classify`."""

    background: str = ""
    """Background class (default: none). It adds the score rejection_50 for each signal class: 1 / (background
    efficiency) at a signal efficiency of 50 %, with the discriminant p / (p + p of the background)."""
    efficiencies: dict[str, float | list[float]] = Field(default_factory=dict)
    """Signal efficiencies of the rejection scores, by class: {Hbb: 0.5} or {Hbb: [0.3, 0.5]} (default: 0.5; 0.3 and 0.5
    with two classes)."""
    spectrum: str = ""
    """Sample column, such as a mass, whose background spectrum the report shows before and after a cut (mass sculpting)
    (default: none)."""

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
                message = f"column `{self.spectrum}` must have one number for each sample, not {kind}"
                raise UserError(message, key="objective.spectrum")

    def _check_rejections(self) -> None:
        if not self.background:
            if self.efficiencies or self.spectrum:
                key = "efficiencies" if self.efficiencies else "spectrum"
                message = f"objective.{key} needs objective.background, the class to reject, which is missing"
                raise UserError(message, key="objective.background")
            return
        one_of("objective.background", self.background, self.classes)
        for name in self.efficiencies:
            if name not in self.signals:
                raise UserError(
                    f"objective.efficiencies must name classes other than the background, not {name!r}",
                    hint=f"{nearest(name, self.signals)} For the usual shares: --objective.efficiencies {{}}",
                    key="objective.efficiencies",
                )
            for share in self.kept(name):
                if not 0 < share <= 1:
                    message = (
                        f"the share of {name} in objective.efficiencies must be above 0 and up to 1, not {share:g}"
                    )
                    raise UserError(message, hint="50 % is 0.5.", key="objective.efficiencies")

    def kept(self, name: str) -> list[float]:
        """The shares of a class that are kept where the background is rejected."""
        shares = self.efficiencies.get(name, [0.3, 0.5] if len(self.classes) == 2 else 0.5)
        return shares if isinstance(shares, list) else [shares]

    @property
    def signals(self) -> list[str]:
        """The classes that are told from the background; none where there is no such."""
        return [name for name in self.classes if name != self.background] if self.background else []

    @property
    def measured(self) -> list[str]:
        return super().measured + [title for title, *_ in self._working_points()]

    def _working_points(self) -> list[tuple[str, str, float]]:
        """(name of the score, class, share that is kept)."""
        found = []
        for name in self.signals:
            after = f"_{name}" if len(self.classes) > 2 else ""
            found += [(f"{REJECTION_PREFIX}{100 * share:.6g}{after}", name, share) for share in self.kept(name)]
        return found

    def _rejections(self, outputs: Mapping[str, Array]) -> dict[str, tuple[str, float, Rejection]]:
        """By the name of the score: class, share that is asked for, and what was found."""
        place = {name: i for i, name in enumerate(self.classes)}
        pair = outputs["probabilities"], outputs["label"]
        return {
            title: (name, share, rejection(*pair, place[name], place[self.background], share))
            for title, name, share in self._working_points()
        }

    def score(self, outputs: Mapping[str, Array]) -> dict[str, float]:
        """The metrics; rejections of which only a lower bound is known are marked as such."""
        found = {title: one for title, (_, _, one) in self._rejections(outputs).items()}
        scores = {title: AtLeast(one.value) if one.bound else one.value for title, one in found.items()}
        return super().score(outputs) | scores

    def details(self, outputs: Mapping[str, Array], samples: Mapping[str, Array] | None = None) -> list[dict[str, Any]]:
        """For every class and share that is kept: the rejection, the cut, and how it changes a spectrum."""
        rows, spectrum = [], None if samples is None else samples.get(self.spectrum)
        for name, share, one in self._rejections(outputs).values():
            row: dict[str, Any] = {"class": name, "kept": f"{100 * share:.6g} %", "rejection": str(one)}
            row |= {f"{self.background} left": one.left, "cut": f"{one.cut:.6g}"}
            if spectrum is not None and np.isfinite(one.value):
                found = self.sculpted(outputs, spectrum, name, one.odds)
                words = [f"{value:.3f}" if np.isfinite(value) else "–" for value in (found.divergence, found.chance)]
                row |= dict(zip((f"change of {self.spectrum}", "by chance"), words))
            rows.append(row)
        return rows

    def sculpted(self, outputs: Mapping[str, Array], column: Array, name: str, least: float) -> Sculpting:
        """How the spectrum of a column of the background changes where ln(p / p of the background) >= `least`."""
        place = {one: i for i, one in enumerate(self.classes)}
        mine = (outputs["label"] == place[self.background]) & np.isfinite(column)
        score = log_odds(outputs["probabilities"][mine], place[name], place[self.background])
        return sculpting(column[mine], score >= least)

    # How rejections are shown

    def lower_is_better(self, name: str) -> bool:
        return not _is_rejection(name) and super().lower_is_better(name)

    def headline(self, names: Iterable[str]) -> list[str]:
        """Without rejections where there is one for each of many classes: they are in the log."""
        shown = super().headline(names)
        hidden = [name for name in shown if _is_rejection(name)]
        return shown if len(hidden) <= MAX_SHOWN_REJECTIONS else [name for name in shown if name not in hidden]

    def score_groups(self, names: Iterable[str]) -> list[ScoreGroup]:
        own = [name for name in names if _is_rejection(name)]
        found = {name: name.removeprefix(REJECTION_PREFIX).replace("_", " % of ", 1) for name in own}
        return [*super().score_groups(names), ScoreGroup("rejection", "Rejections", found)]

    def figures(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, Callable[[], Figure]]:
        from .rejection_plots import rejection_figures  # drawing takes a second to import, and a training draws nothing

        return super().figures(outputs, samples) | rejection_figures(self, outputs, samples)

    def summarises_by_median(self, name: str) -> bool:
        """Of rejections: they spread over factors."""
        return _is_rejection(name)

    def summary_note(self, names: Iterable[str]) -> str:
        if not any(map(_is_rejection, names)):
            return ""
        return "Of rejections the median; ≥ where no background was left in a run."


def _is_rejection(name: str) -> bool:
    return name.startswith(REJECTION_PREFIX)
