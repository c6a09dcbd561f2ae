"""Folders that tests look into: the repository, and shared data beside it where there are any."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
SHARED = ROOT.parent / "shared" / "data"
