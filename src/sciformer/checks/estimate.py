"""Cost of a training, measured with real steps: time, memory and disk space."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..assembly import Assembly
from ..data.batch import Batch
from ..data.prepare import prepare
from ..data.random import SampleRandom
from ..errors import is_out_of_memory
from ..evaluation.evaluate import autocast
from ..files.limits import free_memory
from ..inspection.cost import Cost, cost, format_large, samples_at_once
from ..progress import duration
from ..tokens.protocols import Readout
from ..training.distributed import Ranks, device_name
from ..training.engine import Engine
from ..training.folder import Folder
from ..training.optimizers import optimizer_state
from ..training.progress import ProgressReporter
from ..training.step import bad_samples
from ..training.weights import named_tensors

if TYPE_CHECKING:
    from .check import Checked

TIMED_STEPS, MAX_TIMING_SECONDS = 5, 10.0  # timed steps, and seconds after which timing stops
MAX_TRIED_BATCH = 4096  # largest micro-batch that is tried


def try_training(
    checked: Checked, assembly: Assembly, ranks: Ranks, run: Path, deep: bool, log: Callable[[str], None]
) -> None:
    """Run one step on a real batch; add loss, time, memory and disk to `checked`."""
    engine = Engine(assembly, Folder(run / "never-written"), ranks, ProgressReporter(show=False))
    with closing(engine), engine.own_state():
        _try_engine(checked, engine, run, deep, log)


def _try_engine(checked: Checked, engine: Engine, run: Path, deep: bool, log: Callable[[str], None]) -> None:
    checked.fact("Model", "device", device_name(engine.ranks.device))
    batch = engine.fetch[0]
    expected = _expected_loss(engine)
    log("one step")
    loss, gradient = engine.updater(batch, 0, batch.count).read()
    checked.figures |= {"loss": loss, "gradient": gradient}
    words = f"{loss:.4f}" + (f", random guessing gives {expected:.4f}" if expected else "")
    checked.fact("Model", "loss at the start", words)
    if not math.isfinite(loss + gradient):
        found = bad_samples(batch)
        where = f" Samples {found[:10]} contain NaN or infinity." if found else ""
        advice = "Correct these samples." if found else "Check the scale of the inputs, or lower train.learning_rate."
        checked.problems.append(f"The first step has a non-finite loss or gradient (loss {loss}).{where} {advice}")
        return
    for part, ids in checked.bad.items():
        _check_missing_values(checked, engine, part, ids)
    if expected:
        checked.figures["expected_loss"] = expected
        if loss > 1.3 * expected + 0.3:
            words = f"The initial loss, {loss:.3f}, is above the loss of random guessing, {expected:.3f}"
            checked.notes.append(f"{words}: check that the inputs are scaled to numbers near 1.")
    parameters = sum(weight.numel() for weight in engine.step.parameters() if weight.requires_grad)
    checked.figures["parameters"] = parameters
    checked.fact("Model", "parameters", f"{parameters:,}")
    with checked.trying("timing"):
        _estimate_time(checked, engine, 2 * TIMED_STEPS if deep else TIMED_STEPS, log)
    with checked.trying("memory"):
        _estimate_memory(checked, engine, engine.fetch[engine.order.widest()], log)
    _estimate_disk(checked, engine, run)
    if (fits := engine.updater.micro_batch) != engine.settings.micro_batch:
        checked.notes.append(f"A batch does not fit into memory, but {fits} samples do: see train.micro_batch.")


def _expected_loss(engine: Engine) -> float | None:
    """Loss of random guesses: ln(classes) or ln(vocabulary size); None if unknown."""
    objective: Any = engine.assembly.objective
    if objective.whole_batch:  # the loss depends on the batch
        return None
    if "classes" in objective.state:
        return math.log(len(objective.state["classes"]))
    model: Any = engine.step.model
    readout = getattr(model, "readout", None)
    inner: Any = getattr(readout, "readout", readout)  # the readout inside a ReadoutLayer
    if not isinstance(readout, Readout) or type(inner).forward is Readout.forward:
        return None
    weight = next(readout.parameters())
    with torch.no_grad():
        scores = readout(torch.zeros(1, model.dim, device=weight.device, dtype=weight.dtype))
    return math.log(scores.shape[-1])


def _check_missing_values(checked: Checked, engine: Engine, part: str, ids: list[int]) -> None:
    """Check that the loss is finite for samples with NaN or infinity."""
    some, assembly = np.asarray(ids[:64]), engine.assembly
    batch = assembly.dataset(part).batch(some)
    made = prepare(batch, assembly.tokens, assembly.objective, SampleRandom(0, 0, some), training=False)
    with torch.no_grad(), autocast(engine.ranks.device, engine.updater.precision):
        loss, _ = engine.step(made.inputs(engine.ranks.device))
    if not bool(torch.isfinite(loss)):
        words = f"{len(ids)} samples of {part} contain NaN or infinity and give a loss of {float(loss)}."
        advice = "Correct or remove them; a training skips the steps with these samples, until train.max_skipped."
        checked.problems.append(f"{words} {advice}")


def _estimate_time(checked: Checked, engine: Engine, most: int, log: Callable[[str], None]) -> None:
    """Estimate the training time from the time of a few steps and an evaluation."""
    log("timing some steps")
    settings, device = engine.settings, engine.ranks.device
    steps = _steps(engine, most + 3)
    preparing, computing = _time_steps(engine, steps[:most])
    prepare_s, compute_s = float(np.median(preparing)), float(np.median(computing))
    if device.type == "cpu" and (threads := torch.get_num_threads()) > 1:
        torch.set_num_threads(1)  # one thread may be faster for a small model or on a shared machine
        alone = float(np.median(_time_steps(engine, steps[most:])[1]))
        torch.set_num_threads(threads)
        if compute_s > 1.5 * alone:
            times = f"{_format_seconds(compute_s)} with {threads} threads, but {_format_seconds(alone)} with one"
            checked.notes.append(f"A step takes {times}: set OMP_NUM_THREADS=1 before you train.")
    beside = settings.workers > 0 or device.type == "cuda"  # batches are prepared in parallel
    step = max(compute_s, prepare_s / max(1, settings.workers)) if beside else compute_s + prepare_s
    if beside and prepare_s / max(1, settings.workers) > compute_s:
        checked.notes.append("Batches take longer to prepare than to compute: increase train.workers.")
    part, limit = engine.evaluated_part()
    count = len(engine.assembly.dataset(part))
    count = min(count, limit or count)
    some = min(count, 2 * max(engine.order.batch, 64))
    start = time.monotonic()
    engine.evaluate(part, some)
    _wait(device)
    evaluation = (time.monotonic() - start) * count / max(1, some)
    evaluations = -(-engine.total // engine.every)
    total = engine.total * step + evaluations * evaluation
    checked.figures |= {"steps": engine.total, "seconds_per_step": step}
    checked.figures |= {"seconds_per_evaluation": evaluation, "seconds": total}
    train = engine.assembly.dataset("train")
    checked.figures["passes"] = engine.passes
    held = f"{engine.order.batch}" if settings.tokens is None else f"about {len(train) / engine.order.batches:.0f}"
    checked.fact("Time", "a step", f"{_format_seconds(step)} for {held} {train.unit}")
    checked.fact("Time", "an evaluation", f"{_format_seconds(evaluation)} on {count:,} {train.unit} of {part}")
    counted = f"{evaluations} evaluation{'s' * (evaluations != 1)}"
    words = f"about {duration(total)}: {engine.length} and {counted}"
    checked.fact("Time", "the training", words)


def _steps(engine: Engine, count: int) -> list[int]:
    """Indices of the steps to time; for a compiled model, with equal batch shapes."""
    order = engine.order
    numbers = range(1, 50 * count) if engine.updater.compiled else range(1, count + 1)
    alike = [number for number in numbers if order.room(*order.at(number)) == order.room(0, 0)]
    return (alike if engine.updater.compiled else [*numbers])[:count] or [0]


def _time_steps(engine: Engine, steps: list[int]) -> tuple[list[float], list[float]]:
    """Seconds to prepare and to compute each step; stops after `MAX_TIMING_SECONDS`."""
    preparing, computing = [], []
    began = time.monotonic()
    for number in steps:
        start = time.monotonic()
        batch = engine.fetch[number]
        middle = time.monotonic()
        engine.updater(batch, number, batch.count)
        _wait(engine.ranks.device)
        preparing.append(middle - start)
        computing.append(time.monotonic() - middle)
        if time.monotonic() - began > MAX_TIMING_SECONDS:
            break
    return preparing, computing


def _estimate_memory(checked: Checked, engine: Engine, batch: Batch, log: Callable[[str], None]) -> None:
    tokens = np.sum([stream.lengths for stream in batch.streams.values()], 0)
    needs_all = engine.assembly.objective.needs_all
    few = batch if needs_all else batch.take(np.argsort(-tokens, kind="stable")[:2])
    found = cost(engine.assembly, engine.step, few)
    settings, device = engine.settings, engine.ranks.device
    once = min(engine.updater.micro_batch or len(batch), len(batch))
    fixed = found.training_bytes - found.activation_bytes * samples_at_once(settings, few)
    needed, free = fixed + found.activation_bytes * once, _free_memory(device)
    checked.figures |= {"flops_per_sample": found.flops_per_sample, "memory_bytes": needed, "free_bytes": free}
    operations, unit = format_large(found.flops_per_sample, "FLOP"), engine.assembly.dataset("train").unit
    checked.fact("Model", "operations", f"{operations} a {unit.removesuffix('s')}, forward and backward")
    words = f"about {format_large(needed, 'B')} for micro-batches of {once} {unit}; {format_large(free, 'B')} are free"
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        checked.figures["peak_bytes"] = peak
        words = f"{format_large(peak, 'B')} at most in the timed steps; another {format_large(free, 'B')} are free"
    checked.fact("Memory", "the training", words)
    most = min(MAX_TRIED_BATCH, len(engine.assembly.dataset("train")))
    if needs_all:
        fits, how = once if needed <= free else 0, "all are needed at once"
    elif device.type == "cuda":
        fits, how = _largest_batch_on_cuda(engine, most, log), "tried"
    else:
        fits, how = _largest_batch_by_cost(found, free - fixed, most), "estimated"
    checked.figures["largest_micro"] = fits
    least = "at least " if 2 * fits > most else ""
    checked.fact("Memory", "micro-batch", f"{least}{fits:,} {unit} fit ({how})" if fits else f"none of the {unit} fits")
    if device.type != "cuda" and needed > free:
        key = "train.batch" if engine.updater.one_pass else "train.micro_batch"
        advice = f"Set {key}: {fits}." if fits else "Reduce model.dim or model.depth."
        lacking = f"A step needs about {format_large(needed, 'B')} of memory, but {format_large(free, 'B')} are free."
        checked.problems.append(f"{lacking} {advice}")


def _largest_batch_by_cost(found: Cost, left: float, most: int) -> int:
    """Largest power-of-two batch size, estimated from the memory of the activations."""
    fits = int(min(most, max(0.0, left) / max(1.0, found.activation_bytes)))
    return 1 << (fits.bit_length() - 1) if fits else 0


def _largest_batch_on_cuda(engine: Engine, most: int, log: Callable[[str], None]) -> int:
    """Largest possible power-of-two batch size on a GPU, tried without compilation."""
    size = fits = 1
    dataset, assembly, device = engine.assembly.dataset("train"), engine.assembly, engine.ranks.device
    while size <= most:
        log(f"trying a micro-batch of {size} samples")
        ids = np.arange(size)
        batch = prepare(dataset.batch(ids), assembly.tokens, assembly.objective, SampleRandom(0, 0, ids), training=True)
        try:
            with autocast(device, engine.updater.precision):
                loss, _ = engine.step(batch.inputs(device, engine.updater.pad_to_multiple, engine.settings.packed))
            loss.backward()
            _wait(device)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            break
        finally:
            engine.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
        fits, size = size, 2 * size
    return fits


def _estimate_disk(checked: Checked, engine: Engine, run: Path) -> None:
    settings = engine.settings
    weights = sum(weight.nbytes for weight in named_tensors(engine.step.model).values())
    one = weights + sum(value.nbytes for value in optimizer_state(engine.optimizer, engine.names).values())
    one += sum(value.nbytes for value in engine.ema.values())
    count = max(settings.keep, settings.average_last) + 1  # a new checkpoint is written before an old one is removed
    needed = count * one + 2 * weights
    place = next(folder for folder in (run.resolve(), *run.resolve().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    checked.figures |= {"checkpoint_bytes": one, "disk_bytes": needed, "disk_free_bytes": free}
    words = f"{format_large(needed, 'B')}: {count} checkpoints of {format_large(one, 'B')} and the model; "
    words += f"{format_large(free, 'B')} are free"
    checked.fact("Disk", str(run), words)
    if needed > free:
        advice = "Free disk space, choose another --run, or lower train.keep."
        lacking = f"Checkpoints need {format_large(needed, 'B')}, but {format_large(free, 'B')} are free on {place}."
        checked.problems.append(f"{lacking} {advice}")


def _format_seconds(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _free_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(free_memory())
