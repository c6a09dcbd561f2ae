"""What ran on which device is recorded: `pytest tests/gpu --record FILE`."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


def pytest_addoption(parser):
    parser.addoption("--record", type=Path, help="write a row of results: how many tests passed, and where")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    path = session.config.getoption("--record")
    if path is None:
        return
    from measure import commit, hardware, record, versions

    passed, failed = session.testscollected - session.testsfailed, session.testsfailed
    row = {"id": "gpu_tests.passed", "value": passed, "unit": "tests", "better": "higher", "failed": failed}
    row |= {"command": "make test-gpu", "hardware": hardware("cuda" if torch.cuda.is_available() else "cpu")}
    record(path, [row | {"versions": versions(), "commit": commit(), "spread": None, "seeds": 1}])
