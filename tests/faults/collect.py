"""Write docs/faults.md from the tests of this folder: `python tests/faults/collect.py`."""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
HEAD = """# Faults, and what happens

Every line is a test in `tests/faults`, run with all others by `make test`; this table is written from them by
`python tests/faults/collect.py`. *The same result* means: weights, optimizer, averaged weights, log and samples are
those of a run that was never disturbed, bit for bit on the same machine and layout.

| fault | what happens | test |
| --- | --- | --- |
"""


def page():
    """The page, from the rows that the tests register; files in order of their names, tests as they stand there."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.faults.{path.stem}")
    from tests.faults import ROWS

    rows = sorted(ROWS, key=lambda row: row[2].partition("::")[0])
    return HEAD + "".join(f"| {wrong} | {happens} | `{test}` |\n" for wrong, happens, test in rows)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
    print(PAGE)
