"""The page docs/faults.md lists all tests of this folder."""

import re
from pathlib import Path

from tests.faults.collect import PAGE, page


def test_the_page_is_written_from_the_tests():
    found = page()
    tests = [
        test
        for path in Path(__file__).parent.glob("test_*.py")
        for test in re.findall(r"\ndef test_", path.read_text())
    ]
    assert found.count("\n| ") - 2 == len(tests) - 1 >= 30  # all but this one, each with a row
    assert PAGE.read_text() == found, "python tests/faults/collect.py"
