"""One thread, one seed, and GPU tests only where there is a GPU."""

import gc
import signal

import pytest
import torch


def pytest_collection_modifyitems(config, items):
    if torch.cuda.is_available():
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=gpu)
    items[:] = [item for item in items if item not in gpu]


def pytest_collection_finish(session):
    """Modules and tests stay to the end: searching them for garbage, again and again, takes time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(autouse=True)
def _quiet_and_repeatable():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
