"""The user's mistakes, answered with what was expected, what was found and what to do next."""

from collections.abc import Iterable


class UserError(ValueError):
    """A mistake the user can mend; mistakes of the library itself are assertions."""

    def __init__(self, expected: str, found: str, advice: str = "") -> None:
        self.expected, self.found, self.advice = expected, found, advice
        gap = "\n" if "\n" in found else ". "
        super().__init__(f"expected {expected}; found {found}" + (f"{gap}{advice}" if advice else ""))


def one_of(what: str, value: object, names: object) -> None:
    """Refuse a `value` that is not among the `names`, naming the nearest."""
    import difflib

    known = [str(name) for name in names]  # type: ignore[attr-defined]
    if value in known:
        return
    folded = {name.lower(): name for name in reversed(known)}
    near = [folded[name] for name in difflib.get_close_matches(str(value).lower(), folded, n=1)]
    raise UserError(
        f"{what} to be one of {', '.join(known)}",
        repr(value),
        f"Did you mean {near[0]!r}?" if near else "",
    )


def nearest(value: str, names: Iterable[str], most: int = 8) -> str:
    """Advice for a name that is not there: those most like it, or some of all."""
    import difflib

    known = list(names)
    folded = {name.lower(): name for name in reversed(known)}
    near = [folded[name] for name in difflib.get_close_matches(value.lower(), folded, n=3)]
    if near:
        return f"Did you mean {' or '.join(repr(name) for name in near)}?"
    rest = f" and {len(known) - most:,} more" if len(known) > most else ""
    return f"There are {', '.join(known[:most])}{rest}." if known else ""


class Stopped(Exception):
    """The training was asked to stop by a signal, and did so after saving."""

    def __init__(self, signal: int, name: str, step: int) -> None:
        self.signal = signal
        super().__init__(f"stopped by {name} at step {step}; the same command goes on from there")
