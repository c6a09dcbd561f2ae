"""Write docs/faults.md from the tests of this folder: `python tests/faults/collect.py`."""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
HEAD = """# Faults, and what happens

Every line is a test; `python tests/faults/collect.py` writes this page from the tests. *The same result* means that
weights, optimizer, averaged weights, log and samples are bit for bit equal to those of an undisturbed run on the same
machine and layout.

## On one machine

Run by `make test`, from `tests/faults`.

"""
CLUSTER = """
## On a cluster

Run by `make test-cluster`, from `tests/slurm`: on a real Slurm, with two nodes on one host. It needs Debian's packages
of Slurm, which it downloads without installing them. [cluster.md](cluster.md) says how to start such jobs.

"""
TABLE = """| fault | what happens | test |
| --- | --- | --- |
"""


def page():
    """Text of the page, from the rows registered by the tests; sorted by folder and file."""
    for folder in ("faults", "slurm"):
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            importlib.import_module(f"tests.{folder}.{path.stem}")
    from tests.faults import ROWS

    def table(folder):
        rows = sorted((row for row in ROWS if row[2] == folder), key=lambda row: row[3].partition("::")[0])
        return TABLE + "".join(f"| {wrong} | {happens} | `{test}` |\n" for wrong, happens, _, test in rows)

    return HEAD + table("faults") + CLUSTER + table("slurm")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
    print(PAGE)
