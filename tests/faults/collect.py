"""Write docs/faults.md from the tests of this folder: `python tests/faults/collect.py`."""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
HEAD = """# Faults, and what happens

Every line is a test in `tests/faults`, run by `make test`; `python tests/faults/collect.py` writes this table from the
tests. *The same result* means that weights, optimizer, averaged weights, log and samples are bit for bit equal to those
of an undisturbed run on the same machine and layout.

| fault | what happens | test |
| --- | --- | --- |
"""


def page():
    """Text of the page, from the rows registered by the tests; sorted by file."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.faults.{path.stem}")
    from tests.faults import ROWS

    rows = sorted(ROWS, key=lambda row: row[2].partition("::")[0])
    return HEAD + "".join(f"| {wrong} | {happens} | `{test}` |\n" for wrong, happens, test in rows)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
    print(PAGE)
