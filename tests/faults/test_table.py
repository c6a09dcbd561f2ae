"""The page docs/faults.md lists all tests of this folder and of tests/slurm."""

import re

from tests.faults.collect import PAGE, ROOT, page


def test_the_page_is_written_from_the_tests():
    found = page()
    paths = [path for folder in ("faults", "slurm") for path in (ROOT / "tests" / folder).glob("test_*.py")]
    tests = [test for path in paths for test in re.findall(r"\ndef test_", path.read_text())]
    assert found.count("\n| ") - 4 == len(tests) - 1 >= 30  # all but this one, each with a row
    assert PAGE.read_text() == found, "python tests/faults/collect.py"
