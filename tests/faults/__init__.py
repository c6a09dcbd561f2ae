"""Each fault has a test, and docs/faults.md is the list of them: `python tests/faults/collect.py` writes it."""

ROWS = []  # (what goes wrong, what happens, the test)


def fault(wrong, happens):
    """Put a test into the table, and the same words into its docstring."""

    def note(test):
        test.__doc__ = f"{wrong} -> {happens}"
        ROWS.append((wrong, happens, f"{test.__module__.rpartition('.')[2]}.py::{test.__name__}"))
        return test

    return note
