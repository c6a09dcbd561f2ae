"""PyTorch hook for `torchrun -m sciformer train RECIPE --run FOLDER`.

torchrun parses its whole command line, also the words after `-m sciformer`. Before Python 3.12.7, argparse then refuses
`--run`, because it abbreviates both `--run-path` and `--run_path`. `separate_options` inserts `--` before `sciformer`,
which ends the options of torchrun. PyTorch calls this function in `import torch`, through the entry point
`torch.backends` in pyproject.toml (switched off by TORCH_DEVICE_BACKEND_AUTOLOAD=0).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import PurePath

LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")


def separate_options() -> None:
    """Insert `--` before `sciformer` in the command line of torchrun; else do nothing."""
    words = sys.argv
    if is_torchrun(sys.orig_argv, words[0] if words else "") and (place := find_program(words)):
        words.insert(place, "--")


def is_torchrun(interpreter: Sequence[str], script: str) -> bool:
    """Whether this process is torchrun itself, not a child process.

    interpreter   `sys.orig_argv`: the command line of the Python interpreter
    script        `sys.argv[0]`
    """
    module = script == "-m" and any(
        flag == "-m" and name in LAUNCHERS for flag, name in itertools.pairwise(interpreter)
    )
    return module or PurePath(script).stem == "torchrun"


def find_program(words: Sequence[str]) -> int:
    """Index of `sciformer` in the command line of torchrun; 0 for other programs."""
    for place, (flag, name) in enumerate(itertools.pairwise(words), 1):
        if flag == "--" or flag.endswith(".py"):  # further words belong to the script
            break
        if flag in ("-m", "--module", "--no-python", "--no_python") and PurePath(name).name == "sciformer":
            return place
    return 0
