"""Golden runs: batch ids, seeded losses and predictions of every shipped recipe, to show that a change changes nothing.

`make golden` rewrites tests/golden.json. Batch ids are compared exactly everywhere; losses and predictions bit for bit
on the recorded version of PyTorch and model of CPU, and to 1e-4 elsewhere. A run that was recorded on another machine
than the first runs names its own.
"""

import fcntl
import hashlib
import json
import os
import platform
from pathlib import Path

import numpy as np
import torch

from sciformer.evaluation.evaluate import evaluate, predict
from sciformer.training.step import OptimizerStep

FILE = Path(__file__).with_name("golden.json")
REWRITE = bool(os.environ.get("SCIFORMER_GOLDEN"))
SHOWN = 4  # numbers of each output that are kept for comparisons to 1e-4
TOLERANCE = 1e-4
ANSWERING = (
    "classify",
    "discriminate",
    "regress",
    "tag",
    "denoise",
    "energy",
)  # objectives with an answer for each sample


def read():
    return json.loads(FILE.read_text("utf-8")) if FILE.exists() else {"machine": {}, "runs": {}}


def machine():
    """What the last bits depend on."""
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "torch": torch.__version__.partition("+")[0],
        "cpu": cpu,
        "kernels": torch.backends.cpu.get_cpu_capability(),
    }


RECORDED = read()
NAMES = list(RECORDED["runs"])


def batch_ids(monkeypatch):
    """A list that a training fills with the sample ids of its batches."""
    ids, update = [], OptimizerStep.__call__

    def spy(self, batch, *rest):
        ids.append(batch.ids.tolist())
        return update(self, batch, *rest)

    monkeypatch.setattr(OptimizerStep, "__call__", spy)
    return ids


def facts(run, ids):
    """What a golden run records."""
    samples = run.samples("valid")
    judged = evaluate(run.step, run.assembly, samples)
    outputs = {"loss": np.array(judged.scores["loss"]), **judged.outputs}
    if run.recipe.objective.kind in ANSWERING:
        outputs |= predict(run.step, run.assembly, samples, torch.device("cpu"), 8).outputs
    digest, shown = hashlib.sha256(), []
    for value in outputs.values():
        numbers = []
        for part in leaves(value):
            digest.update(f"{part.dtype.str} {part.shape}".encode() + np.ascontiguousarray(part).tobytes())
            if part.dtype.kind in "fiub":
                numbers += part.ravel()[: SHOWN - len(numbers)].tolist()
        shown.append([float(number) for number in numbers])
    return {
        "batches": list(ids),
        "losses": [record["loss"] for record in run.records if "loss" in record],
        "predictions": {"sha256": digest.hexdigest(), "first": shown},
    }


def leaves(value):
    """The arrays of numbers or of text in an output; ragged outputs are arrays of arrays."""
    array = np.asarray(value)
    return [leaf for part in array.ravel() for leaf in leaves(part)] if array.dtype == object else [array]


def write(name, found):
    """Record a run; tests in several processes take turns."""
    with open(FILE.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = read()
        here = machine()
        kept["machine"] = kept["machine"] or here
        kept["runs"][name] = found if kept["machine"] == here else found | {"machine": here}
        kept["runs"] = dict(sorted(kept["runs"].items()))
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in kept["runs"].items())
        text = f'{{\n "machine": {json.dumps(kept["machine"])},\n "runs": {{\n{lines}\n }}\n}}\n'
        FILE.with_suffix(".new").write_text(text, "utf-8")
        FILE.with_suffix(".new").replace(FILE)


def compare(found, name):
    """Fail where a run differs from its record."""
    recorded = read() if REWRITE else RECORDED
    wanted = recorded["runs"][name]
    assert found["batches"] == wanted["batches"]
    if wanted.get("machine", recorded["machine"]) == machine():
        assert found["losses"] == wanted["losses"]
        assert found["predictions"] == wanted["predictions"]
    np.testing.assert_allclose(found["losses"], wanted["losses"], TOLERANCE, TOLERANCE)
    for mine, theirs in zip(found["predictions"]["first"], wanted["predictions"]["first"], strict=True):
        np.testing.assert_allclose(mine, theirs, TOLERANCE, TOLERANCE)
