"""Fault tests; `python tests/faults/collect.py` lists them in docs/faults.md."""

ROWS = []  # (what goes wrong, what happens, the test)


def fault(wrong, happens):
    """Add a test to the table of faults, and set its docstring."""

    def note(test):
        test.__doc__ = f"{wrong} -> {happens}"
        ROWS.append((wrong, happens, f"{test.__module__.rpartition('.')[2]}.py::{test.__name__}"))
        return test

    return note
