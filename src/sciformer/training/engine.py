"""Training loop: steps, log, evaluation, checkpoints, resumption."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from signal import Signals
from typing import Any

import torch
from torch import Tensor

from ..assembly import Assembly
from ..data.batch import Batch
from ..data.loader import Fetch, load
from ..data.sampler import make_sampler
from ..errors import Stopped, UserError, one_of
from ..evaluation.evaluate import Evaluation, evaluate
from ..files.seal import Damaged
from ..metrics import AtLeast
from ..nn.norms import batch_norms
from ..objectives.base import Step
from . import checkpoint
from .distributed import Ranks, local_tensor, own_part, place
from .finetune import freeze
from .folder import Folder
from .optimizers import learning_rate, make_optimizer, optimizer_state, restore_optimizer
from .progress import Board, ProgressReporter
from .signals import Stop
from .step import OptimizerStep, StepResult, allow_many_shapes, bad_samples, bad_samples_of, matmul_precision
from .weights import load_into, load_weights, mean_weights, named_tensors, save_weights, stream_weights

WARN_ABOVE_SHAPES = 24  # batch shapes; the compiler takes half a minute for each


class Engine:
    """Training of an assembly in a run folder, started by `Engine(...).run()`."""

    def __init__(self, assembly: Assembly, folder: Folder, ranks: Ranks, reporter: ProgressReporter) -> None:
        self.assembly, self.folder, self.ranks, self.reporter = assembly, folder, ranks, reporter
        self.settings = settings = assembly.recipe.train
        train, model = assembly.dataset("train"), assembly.network()
        mixed = bool(batch_norms(model))
        self.order = make_sampler(
            train,
            settings.batch,
            settings.tokens,
            settings.seed,
            bucket=not mixed if settings.bucket is None else settings.bucket,
            multiple=settings.pad_to_multiple,
            packed=settings.packed,
            shift=assembly.objective.lookahead,
        )
        self.fetch = Fetch(train, self.order, assembly.tokens, assembly.objective, ranks.rank, ranks.world)
        self.total = settings.total(self.order.batches)
        self.every = settings.evaluate_every or max(1, self.total // 10)
        self.save_every = settings.save_every or self.every
        model = model.to(ranks.device)
        self.step = Step(model, assembly.objective)
        if settings.freeze:
            freeze(self.step)
        self.wrapped = ranks.wrap(self.step, settings.shard)
        self.optimizer = make_optimizer(self.step, settings, ranks.device)
        share = -(-self.order.batch // ranks.world)
        self.declared = assembly.carried()
        carried = {name: self._own_part(name, one.initial) for name, one in self.declared.items()}
        self.updater = OptimizerStep(
            self.step, self.wrapped, self.optimizer, settings, ranks, self.total, share, self.log, carried
        )
        shapes = self.order.shapes(self.updater.pad_to_multiple) if self.updater.compiled else 0
        if shapes > WARN_ABOVE_SHAPES:
            text = f"batches have up to {shapes} shapes, and a step is compiled for each"
            self.log(f"{text}: a larger train.pad_to_multiple gives fewer shapes")
        self.names = {id(weight): name for name, weight in model.named_parameters()}
        averaged = model.named_parameters() if settings.ema else ()
        self.ema = {name: weight.detach().clone() for name, weight in averaged}
        one_of("train.best", settings.best, ["loss", *assembly.objective.measured])
        self.sharded = settings.shard == "full" and ranks.world > 1
        self.number = 0  # steps done
        self.best: dict[str, Any] = {}  # step and scores of the best model so far
        self.evaluated: int | None = None  # last step with a finite loss in an evaluation
        self.sound: int | None = None  # the last of these steps with a checkpoint; this checkpoint is always kept
        self.worse = 0  # number of evaluations since the best evaluation
        self.bad = 0  # consecutive skipped steps
        self.early = False  # whether early stopping ended the training
        self.board: Board | None = None
        self.sums = [0.0, 0.0, 0.0]  # sums since the last log line: loss, gradient norm, steps
        self.since = (0, time.monotonic())  # tokens since the last log line, and its time

    def log(self, text: str) -> None:
        """Print a line, on the first rank only."""
        if self.ranks.first:
            self.reporter.log(text)

    # The loop

    def run(self, stop_after: int | None = None) -> None:
        """Train to the end, or save and pause after step `stop_after`."""
        last = self.total if stop_after is None else min(self.total, stop_after)
        self.board = Board(self.folder.path / "tensorboard", self.number) if self.ranks.first else None
        self.reporter.begin(self.total, self.number)
        self.since = (0, time.monotonic())
        stop = Stop()
        try:
            loaded = load(self.fetch, self.number, last, workers=self.settings.workers, log=self.log)
            with self.own_state(), stop.listening(), closing(loaded) as batches:
                pretrained = self.assembly.pretrained
                if self.number == 0 and pretrained is not None and pretrained.can_answer:
                    self._evaluate_and_keep()  # a pretrained head can predict already: worse models are not kept
                before: tuple[int, StepResult, Batch] | None = None
                for batch in batches:
                    count, asked, signals = self.ranks.sum(batch.count, float(bool(stop)), float(stop.signal))
                    updated = self.updater(batch, self.number, count)
                    self.number += 1
                    self._update_average(updated, batch)
                    if before is not None:
                        self._read_result(*before)  # the previous step: the device has finished it by now
                    before = self.number, updated, batch
                    done = self.number == last
                    judges = self.number % self.every == 0 or self.number == self.total
                    saves = self.number % self.save_every == 0 or done or asked > 0
                    if judges or saves:
                        self._read_result(*before)
                        before = None
                    if judges and self._evaluate_and_keep():
                        self.early = saves = done = True
                    if saves:
                        self._save()
                    if asked > 0 and not done:
                        number = stop.signal or round(signals / asked)  # or the signal that another rank received
                        self.ranks.lead(partial(self.folder.note_stop, self.number, signal=Signals(number).name))
                        raise Stopped(number, self.number)
                    if done:
                        break
        finally:
            self.reporter.end()
            if self.board is not None:
                self.board.end()

    def close(self) -> None:
        """Free the compiled step; a further `run` compiles it again."""
        self.updater.close()

    @contextmanager
    def own_state(self) -> Generator[None]:
        """Context manager: restore random state and matmul precision at the end."""
        device = self.ranks.device
        devices = [device.index or 0] if device.type == "cuda" else []
        with (
            torch.random.fork_rng(devices=devices),
            matmul_precision(self.settings, device),
            allow_many_shapes(self.updater.compiled),
        ):
            yield

    def _update_average(self, updated: StepResult, batch: Batch) -> None:
        """Update the moving average of the weights, without a device sync."""
        if self.ema:
            weights = [weight.detach() for weight in self.step.model.parameters()]
            keep = min(self.settings.ema, (1 + self.number) / (10 + self.number))  # a shorter memory in the first steps
            torch._foreach_lerp_(list(self.ema.values()), weights, 1 - keep)

    def _read_result(self, number: int, updated: StepResult, batch: Batch) -> None:
        """Read loss and gradient norm of a step for the log; report a skipped step."""
        loss, norm = updated.read()
        self.since = (self.since[0] + batch.tokens, self.since[1])
        if math.isfinite(norm):
            self.sums = [self.sums[0] + loss, self.sums[1] + norm, self.sums[2] + 1]
            self.bad = 0
        else:
            self._record_skipped(number, batch)
        if number % self.settings.log_every == 0:
            self._log(number)

    def _record_skipped(self, number: int, batch: Batch) -> None:
        """Log a skipped step; error after `max_skipped` skipped steps in a row."""
        self.bad += 1
        found = sorted(sample for part in self.ranks.gather(bad_samples(batch)) for sample in part)
        where = f"NaN or infinity in samples {found[:10]}" if found else f"the samples {batch.ids[:10].tolist()} ..."
        self.log(f"step {number}: the gradient was not finite; the step was skipped ({where})")
        record = {"step": number, "left_out": True, "samples": found or batch.ids[:10].tolist()}
        self.ranks.lead(lambda: self.folder.append(record))
        if self.bad >= self.settings.max_skipped:
            self._check_finite()
            message = f"the gradient was not finite in {self.bad} consecutive steps; the last step had {where}"
            hint = "Weights and last checkpoint are finite. Check these samples, or lower train.learning_rate."
            raise UserError(message, hint=hint + self._resume_hint(), key=None if found else "train.learning_rate")

    def _log(self, number: int) -> None:
        """Write a log line with means over the steps since the last line."""
        loss, norm, steps = self.sums
        (tokens, when), now = self.since, time.monotonic()
        loss, tokens_all = self.ranks.sum(loss, tokens)
        self.sums = [0.0, 0.0, 0.0]
        self.since = (0, now)
        if not steps:
            return  # all steps were skipped, and this is logged already
        record = {
            "step": number,
            "epoch": number / self.order.batches,
            "loss": loss / steps,
            "norm": norm / steps,
            "learning_rate": learning_rate(number - 1, self.total, self.settings),
            "tokens_per_s": tokens_all / max(now - when, 1e-9),
            "time": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        }

        def write() -> None:
            assert self.board is not None
            self.folder.append(record)
            self.reporter.step(number, record)
            self.board.add(record)

        self.ranks.lead(write)

    # Evaluation and checkpoints

    def _evaluate_and_keep(self) -> bool:
        """Evaluate the model, and save the best model; return whether to stop early."""
        began = time.monotonic()
        part, found = self._evaluate()
        scores = {name: float(value) for name, value in found.scores.items()}
        weights: dict[str, Tensor] | Path = {}
        self.worse += 1
        lower = [name for name, value in found.scores.items() if isinstance(value, AtLeast)]
        bounds = {"bounds": lower} if lower else {}
        if math.isfinite(scores["loss"]):
            self.evaluated = self.number
        if better := self._is_better(scores):
            self._check_finite()
            self.best, self.worse = {"step": self.number, "scores": scores, **bounds}, 0
            weights = self.kept_weights()
        record = {"step": self.number, **{f"{part}_{name}": value for name, value in scores.items()}, **bounds}

        def write() -> None:
            assert self.board is not None
            self.folder.append(record)
            shown = self.step.objective.headline(found.scores)
            self.reporter.scores(self.number, {name: found.scores[name] for name in shown}, better)
            self.board.add(record)
            if better:
                save_weights(self.folder.model, weights, self.best)

        self.ranks.lead(write)
        self.since = (self.since[0], self.since[1] + time.monotonic() - began)  # without the time of the evaluation
        if self.settings.patience and self.worse >= self.settings.patience:
            self.log(f"no better {self.settings.best} in {self.worse} evaluations: stopping early")
            return True
        return False

    def _evaluate(self) -> tuple[str, Evaluation]:
        """Evaluate the moving average of the weights; return part and scores.

        Without a moving average, the weights themselves are evaluated.
        """
        part, limit = self.evaluated_part()
        current = self._swap(self.ema) if self.ema else {}
        found = self.evaluate(part, limit)
        if current:
            self._swap(current)
        self._check_scores(part, found.scores, limit)
        return part, found

    def evaluated_part(self) -> tuple[str, int | None]:
        """Part for the selection of the best model, and number of samples (None: all)."""
        return ("valid", None) if "valid" in self.assembly.parts() else ("train", 1024)

    def evaluate(self, part: str, limit: int | None) -> Evaluation:
        """Evaluate the current weights on the first `limit` samples of a part."""
        return evaluate(
            self.step,
            self.assembly,
            self.assembly.dataset(part),
            ranks=self.ranks,
            device=self.ranks.device,
            batch=self.updater.micro_batch or max(self.order.batch, 64),
            tokens=None if self.settings.tokens is None else max(self.settings.tokens, 64 * 64),
            limit=limit,
            precision=self.updater.precision,
            carried=self.updater.carried,
        )

    def _check_scores(self, part: str, scores: dict[str, float], limit: int | None) -> None:
        """Warn if a score is not finite; stop if the data contain NaN or infinity."""
        wrong = {name: scores[name] for name in ("loss", self.settings.best) if not math.isfinite(scores[name])}
        if not wrong:
            return
        words = ", ".join(f"{part} {name} is {value}" for name, value in wrong.items())
        if bad := bad_samples_of(self.assembly, part, limit):
            found = f"{len(bad)} samples of the part {part} contain NaN or infinity (rows {bad[:10]}, counted from 0)"
            hint = "Correct or remove these samples: without finite scores no best model can be selected."
            raise UserError(f"{words}, because {found}", hint=hint)
        why = "; the model diverged, lower train.learning_rate" if "loss" in wrong else ""
        self.log(f"step {self.number}: {words}, although the data are finite{why}; this model is not kept")

    def _swap(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Replace the weights of the model; return the replaced weights."""
        model = self.step.model
        had = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(weights[name])
        return had

    def _is_better(self, scores: dict[str, float]) -> bool:
        """Whether these scores are the best so far; for equal scores, the loss decides."""
        name, before = self.settings.best, self.best.get("scores")
        if not before or math.isnan(before[name]):
            return not before or not math.isnan(scores[name])
        sign = -1 if self.step.objective.lower_is_better(name) else 1
        return (sign * scores[name], -scores["loss"]) > (sign * before[name], -before["loss"])

    def kept_weights(self) -> dict[str, Tensor] | Path:
        """Weights to keep (or their average), on the CPU; a file if they are sharded."""
        kept = {**named_tensors(self.step.model), **self.ema}
        if self.sharded:
            return stream_weights(self.folder.model, kept, self.best, self.ranks)
        return {name: weight.detach().cpu() for name, weight in kept.items()}

    def _check_finite(self) -> None:
        """Raise an error if a weight is not finite; all ranks must call it."""
        weights: dict[str, Tensor] = dict(self.step.model.named_parameters())
        weights |= {f"ema of {name}": average for name, average in self.ema.items()}
        finite = torch.stack([local_tensor(weight).isfinite().all() for weight in weights.values()]).tolist()
        wrong = [name for name, fine in zip(weights, finite, strict=True) if not fine]
        if not self.ranks.sum(len(wrong))[0]:
            return
        names = sorted({name for part in self.ranks.gather(wrong) for name in part})
        message = f"the weights are not finite after step {self.number}: {', '.join(names[:4])}; they are not saved"
        last = checkpoint.steps(self.folder.checkpoints)
        lower = f"--train.learning_rate {self.settings.learning_rate / 3:g}"
        hint = f"Lower train.learning_rate: sciformer train RECIPE --run {self.folder.path} {lower}"
        if last:
            hint = f"{hint} --accept-changes. It continues from step {last[-1]}, whose weights are finite."
            hint += self._resume_hint()
        raise UserError(message, hint=hint, key="train.learning_rate", file=self.folder.path)

    def _resume_hint(self) -> str:
        """Hint on resuming from the last evaluated checkpoint; may be empty."""
        there = checkpoint.steps(self.folder.checkpoints)
        if self.sound is None and there:
            return " No checkpoint was evaluated yet: with --fresh the training starts over."
        if self.sound in (None, *there[-1:]):
            return ""
        why = f"To resume from step {self.sound}, the last step with a finite loss in an evaluation"
        return f" {why}, remove the newer folders in {self.folder.checkpoints}."

    def _save(self) -> None:
        """Save a checkpoint: counters, weights and optimizer state."""
        self._check_finite()
        if self.evaluated == self.number:
            self.sound = self.number
        remembered = optimizer_state(self.optimizer, self.names)
        tensors = {"weights": named_tensors(self.step.model), "optimizer": remembered, "average": self.ema}
        if self.declared:
            every = self.ranks.gather({name: value.cpu() for name, value in self.updater.carried.items()})
            tensors["carried"] = {
                name: torch.cat([one[name] for one in every]) if self.declared[name].divided else every[0][name]
                for name in self.declared
            }
        state = {
            "best": self.best,
            "sound": self.sound,
            "worse": self.worse,
            "bad": self.bad,
            "halved": None if self.updater.micro_batch == self.settings.micro_batch else self.updater.micro_batch,
            "early": self.early,
            "sums": [*self.ranks.sum(self.sums[0]), *self.sums[1:]],  # each rank has a share of the loss
        }

        keep, folder = max(self.settings.keep, self.settings.average_last), self.folder.checkpoints

        def write() -> None:
            self.folder.secure()
            if not self.sharded:
                checkpoint.save(folder, self.number, tensors, state, keep=keep, also=self.sound)

        self.ranks.lead(write)
        if self.sharded:
            own = {stem: own_part(named, self.ranks.first) for stem, named in tensors.items()}
            checkpoint.save_shards(folder, self.number, own, state, self.ranks, keep=keep, also=self.sound)

    def _own_part(self, name: str, value: Tensor) -> Tensor:
        """Shard of a carried tensor for this rank, on the device of the rank."""
        if self.declared[name].divided:
            value = value.tensor_split(self.ranks.world)[self.ranks.rank]
        return value.to(self.ranks.device)

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Restore weights, optimizer, carried tensors and counters from a checkpoint."""
        load_into(self.step.model, saved.tensors["weights"], place, f"the checkpoint {saved.path}", saved.path)
        averaged = saved.tensors["average"] or saved.tensors["weights"]  # empty if averaging was switched on later
        for name, weight in self.ema.items():
            weight.copy_(place(averaged[name], weight))
        restore_optimizer(self.optimizer, self.names, saved.tensors["optimizer"], place)
        for name, declared in self.declared.items():
            value = saved.tensors.get("carried", {}).get(name)
            if value is None or value.shape != declared.initial.shape:
                found = "is missing" if value is None else f"has shape {tuple(value.shape)}"
                message = f"the checkpoint {saved.path} does not fit the objective: tensor `{name}` {found}"
                raise UserError(message, hint=f"The objective needs the shape {tuple(declared.initial.shape)}.")
            self.updater.carried[name] = self._own_part(name, value)
        loss, norm, steps = saved.state["sums"]
        self.sums = [loss * self.ranks.first, norm, steps]
        self.number, self.best, self.worse = saved.step, saved.state["best"], saved.state["worse"]
        self.bad, self.early, self.sound = saved.state["bad"], saved.state["early"], saved.state.get("sound")
        sizes = [size for size in (saved.state["halved"], self.settings.micro_batch) if size]
        self.updater.micro_batch = None if self.updater.one_pass else min(sizes, default=None)

    @property
    def passes(self) -> float:
        """Mean number of passes of the whole training over the tokens of the data.

        This number differs from the number of epochs if windows overlap or leave tokens out. An epoch also leaves out
        the last samples that do not fill a batch.
        """
        train, passes = self.assembly.dataset("train"), self.total / self.order.batches
        if self.settings.tokens is None:
            passes *= min(1, self.order.batches * self.order.batch / max(1, len(train)))
        if train.windows is None:
            return passes
        shown = len(train) * train.width if train.width is not None else int(train.widths.sum())
        return passes * shown / max(1, int(train.whole_lengths.sum()))

    @property
    def length(self) -> str:
        """Length of the training in words: `1,000 steps (25.6 passes)`."""
        return f"{self.total:,} steps ({self.passes:.3g} passes)"

    @property
    def complete(self) -> bool:
        """Whether the last step is done, or the training was stopped early."""
        return self.number >= self.total or self.early

    def repair(self, accepted: bool) -> bool:
        """Rebuild a damaged best model from its checkpoint.

        Returns whether the model was intact.

        accepted    if the best model has no checkpoint, keep the model of the restored checkpoint instead
        """
        if not self.best or (self.complete and self.settings.average_last):  # the mean is written anyway
            return True
        found: list[str] = []
        self.ranks.lead(lambda: found.append(self._rebuild(accepted)))
        outcome = self.ranks.agree(found and found[0])
        if outcome == "lost":
            part, scored = self._evaluate()
            old, scores = self.best, {name: float(value) for name, value in scored.scores.items()}
            self.best = {"step": self.number, "scores": scores}
            weights = self.kept_weights()

            def write() -> None:
                save_weights(self.folder.model, weights, self.best)
                self.folder.seal({"model/calibration.json": None})  # it belongs to the old model

            self.ranks.lead(write)
            self.log(f"kept the model of step {self.number} instead of step {old['step']}: {part} {scores}")
        return bool(outcome == "intact")

    def _rebuild(self, accepted: bool) -> str:
        """Rebuild a damaged best model; return the outcome: `intact`, `rebuilt` or `lost`."""
        try:
            load_weights(self.folder.model)
            return "intact"
        except Damaged as error:
            fault = error
        step, saved = self.best["step"], None
        if step in checkpoint.steps(self.folder.checkpoints):
            with suppress(UserError):  # logged
                saved = checkpoint.load(self.folder.checkpoints, log=self.log, step=step)
        if saved is not None:
            save_weights(self.folder.model, {**saved.tensors["weights"], **saved.tensors["average"]}, self.best)
            self.log(f"{fault.message}; the model is rebuilt from the checkpoint of step {step}")
            return "rebuilt"
        if accepted:
            return "lost"
        run = self.folder.path
        hint = (
            f"Restore it from a copy. Or train again with `sciformer train {run} --fresh`, or keep the model of "
            f"step {self.number} instead with `sciformer train {run} --accept-changes`."
        )
        message = (
            f"the best model, of step {step}, is damaged, and there is no checkpoint of this step: {fault.message}"
        )
        raise UserError(message, hint=hint, file=fault.file)

    def average_checkpoints(self) -> None:
        """Save the mean of the last `average_last` checkpoints as the final model."""
        if not self.settings.average_last:
            return
        weights, used = mean_weights(self.folder.checkpoints, self.settings.average_last, self.log)
        load_into(self.step.model, weights, place, "the checkpoints", self.folder.checkpoints)
        self.ema = {}
        part, found = self._evaluate()
        scores = {name: float(value) for name, value in found.scores.items()}
        about = {"step": self.number, "scores": scores, "mean_of": used}
        self.ranks.lead(lambda: save_weights(self.folder.model, weights, about))
        self.log(f"kept the mean of the checkpoints of steps {', '.join(map(str, used))}: {part} {scores}")
