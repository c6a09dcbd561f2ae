"""What ran on which device is recorded: `pytest tests/gpu --record FILE`. Warnings are told and are no errors here: the
compiler has some of its own."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


def pytest_addoption(parser):
    parser.addoption("--record", type=Path, help="write a row of results: how many tests passed, and where")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


PASSED = []


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        PASSED.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    path = session.config.getoption("--record")
    if hasattr(session.config, "workerinput"):  # one of several processes (-n 8): the first one has all reports
        return
    if path is None or not torch.cuda.is_available() or not PASSED:  # nothing ran on a GPU: no record
        return
    from measure import commit, hardware, record, versions

    row = {"id": "gpu_tests.passed", "value": len(PASSED), "unit": "tests", "better": "higher"}
    row |= {"failed": session.testsfailed, "command": "make test-gpu", "hardware": hardware("cuda")}
    record(path, [row | {"versions": versions(), "commit": commit(), "spread": None, "seeds": 1}])
