"""Scripts of benchmarks are imported by their own names."""

import sys

from tests.paths import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))
