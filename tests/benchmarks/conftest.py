"""Scripts of benchmarks are imported by their own names."""

import importlib.metadata
import sys

import pytest

from tests.paths import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))


@pytest.fixture
def versions(monkeypatch):
    """A version of every package, installed or not."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1")
