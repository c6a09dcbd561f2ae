"""Fault tests; `python tests/faults/collect.py` lists them in docs/faults.md."""

ROWS = []  # (what goes wrong, what happens, folder, the test)


def fault(wrong, happens):
    """Add a test to the table of faults, and set its docstring."""

    def note(test):
        test.__doc__ = f"{wrong} -> {happens}"
        _, folder, module = test.__module__.split(".")
        ROWS.append((wrong, happens, folder, f"{module}.py::{test.__name__}"))
        return test

    return note
