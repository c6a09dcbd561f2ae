"""Numbers of which only a bound is known."""

from __future__ import annotations


class AtLeast(float):
    """A number that is a lower bound, and says so where it is written."""

    def __format__(self, form: str) -> str:
        return f"≥ {float(self):{form}}"

    def __str__(self) -> str:
        return f"{self:g}"
