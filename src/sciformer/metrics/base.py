"""Registry of metrics: function, inputs, and whether higher or lower is better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from numpy.typing import ArrayLike

from ..errors import UserError
from ..recipe.registry import find, names

Function = TypeVar("Function", bound=Callable[..., float])
Better = Literal["higher", "lower", "neither"]
CLASSES, NUMBERS, SPREADS = ("probabilities", "label"), ("mean", "target"), ("mean", "std", "target")


@dataclass(frozen=True)
class Metric:
    """Score of a model: function, inputs, and whether higher or lower is better."""

    function: Callable[..., float]
    better: Better
    needs: tuple[str, ...]
    help: str
    class_samples: int = 0

    def __call__(self, outputs: Mapping[str, ArrayLike]) -> float:
        """Compute the metric from the outputs in `needs`; ignore other outputs."""
        if missing := [name for name in self.needs if name not in outputs]:
            there = f"the outputs are {', '.join(outputs)}" if outputs else "there are no outputs"
            raise UserError(f"the metric {self.function.__name__} needs {' and '.join(missing)}, but {there}")
        return self.function(**{name: outputs[name] for name in self.needs})


def metric(better: Better, needs: tuple[str, ...], help: str, class_samples: int = 0) -> Callable[[Function], Function]:
    """Decorator for a function of arrays, to register it as a metric.

    better  whether a higher or a lower value is better; `neither`: this metric selects no model
    needs   outputs of an objective; the arguments of the function have the same names
    help    short description of the metric
    class_samples   minimum number of samples in at least two classes; with fewer samples no value is shown (default: 0)
    """

    def decorate(function: Function) -> Function:
        function.metric = Metric(function, better, needs, help, class_samples)  # type: ignore[attr-defined]
        return function

    return decorate


class RegisteredMetrics(Mapping[str, Metric]):
    """All metrics by name: built-in metrics, and metrics of domains and plugins."""

    def __getitem__(self, name: str) -> Metric:
        if name not in names("metric"):
            raise KeyError(name)
        return find("metric", name).metric

    def __iter__(self) -> Iterator[str]:
        return iter(names("metric"))

    def __len__(self) -> int:
        return len(names("metric"))


METRICS = RegisteredMetrics()


class AtLeast(float):
    """Lower bound of a score, printed with a leading ≥."""

    def __format__(self, form: str) -> str:
        return f"≥ {float(self):{form}}"

    def __str__(self) -> str:
        return f"{self:g}"
