"""The training of a recipe in a run folder, from the first step or from where it was left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..assembly import Assembly
from ..data.batch import Batch
from ..data.loader import Fetch, load
from ..data.order import Order
from ..errors import Stopped, UserError, one_of
from ..evaluate import Judgement, judge
from ..metrics import METRICS
from ..objectives.base import Step
from . import checkpoint
from .folder import Folder, sync
from .optimizers import make_optimizer, optimizer_state, restore_optimizer
from .parallel import Ranks, place, whole
from .progress import Board, Teller
from .signals import Stop
from .update import Updated, Updater, bad_samples
from .weights import mean_of, named, put, save_weights


class Engine:
    """Everything a training needs, and its loop: `Engine(...).run()`."""

    def __init__(self, assembly: Assembly, folder: Folder, ranks: Ranks, teller: Teller) -> None:
        self.assembly, self.folder, self.ranks, self.teller = assembly, folder, ranks, teller
        self.settings = settings = assembly.recipe.train
        train = assembly.dataset("train")
        lengths = train.lengths if settings.bucket else None
        chunks = train.sizes if len(train.sizes) > 1 else None
        self.order = Order(len(train), settings.batch, settings.seed, lengths=lengths, chunks=chunks)
        self.fetch = Fetch(train, self.order, assembly.tokens, assembly.objective, ranks.rank, ranks.world)
        self.total = settings.total(self.order.batches)
        self.every = settings.evaluate_every or max(1, self.total // 10)
        self.save_every = settings.save_every or self.every
        model = assembly.network().to(ranks.device)
        self.step = Step(model, assembly.objective)
        self.wrapped = ranks.wrap(self.step, settings.shard)
        self.optimizer = make_optimizer(self.step, settings, ranks.device)
        self.updater = Updater(self.step, self.wrapped, self.optimizer, settings, ranks, self.total, self.say)
        self.names = {id(weight): name for name, weight in model.named_parameters()}
        self.average: dict[str, Tensor] = {}
        if settings.average:
            self.average = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        one_of("train.best", settings.best, ["loss", *METRICS])
        self.number = 0  # updates done
        self.best: dict[str, Any] = {}  # step and scores of the best model so far
        self.worse = 0  # evaluations since then
        self.bad = 0  # steps in a row that were left out
        self.early = False  # whether patience ended the training
        self.sums = torch.zeros(2, device=ranks.device)  # of loss and gradient since the last line of the log
        self.since = (0, 0, time.monotonic())  # steps and tokens since that line, and when it was written

    def say(self, text: str) -> None:
        """One line, from the first rank."""
        if self.ranks.first:
            self.teller.say(text)

    # The loop

    def run(self, stop_after: int | None = None) -> None:
        """Train to the end, or pause after so many steps (as a signal would make it)."""
        last = self.total if stop_after is None else min(self.total, stop_after)
        board = Board(self.folder.path / "tensorboard", self.number) if self.ranks.first else None
        self.teller.begin(self.total, self.number, self.assembly.objective.unit)
        self.since = (self.since[0], 0, time.monotonic())
        stop = Stop()
        try:
            with stop.listening():
                before: tuple[Updated, Batch] | None = None
                for batch in self._batches(last):
                    count, asked = self.ranks.sum(batch.count, float(bool(stop)))
                    updated = self.updater(batch, self.number, count)
                    self.number += 1
                    self._remember(updated, batch)
                    if before is not None:
                        self._look(*before)  # the step before: by now the device has done it
                    before = updated, batch
                    done = self.number == last
                    logs, judges = (
                        self._due(self.settings.log_every),
                        self._due(self.every) or self.number == self.total,
                    )
                    saves = self._due(self.save_every) or done or asked > 0
                    if logs or judges or saves:
                        self._look(*before)
                        before = None
                    if logs:
                        self._log(board)
                    if judges and self._judge(board):
                        self.early = saves = done = True
                    if saves:
                        self._save()
                    if asked > 0 and not done:
                        heard = stop if stop else _from_others()
                        raise Stopped(heard.signal, heard.name, self.number)
                    if done:
                        break
        finally:
            self.teller.end()
            if board is not None:
                board.end()

    def _batches(self, last: int) -> Iterator[Batch]:
        return load(
            self.fetch,
            self.number,
            last,
            workers=self.settings.workers,
            ahead=self.ranks.device.type == "cuda",
            say=self.say,
        )

    def _due(self, every: int) -> bool:
        return self.number % every == 0

    def _remember(self, updated: Updated, batch: Batch) -> None:
        """Add to the sums of the log and to the average of the weights, without waiting for the device."""
        self.sums += torch.where(updated.fine, torch.stack([updated.loss, updated.norm]), 0)
        steps, tokens, when = self.since
        self.since = (steps + 1, tokens + batch.tokens, when)
        if self.average:
            weights = [weight.detach() for weight in self.step.model.parameters()]
            keep = min(self.settings.average, (1 + self.number) / (10 + self.number))  # forget the beginning sooner
            torch._foreach_lerp_(list(self.average.values()), weights, 1 - keep)

    def _look(self, updated: Updated, batch: Batch) -> None:
        """Was the gradient finite? If not, the weights were left as they were: say so, and give up after some."""
        if bool(updated.fine):
            self.bad = 0
            return
        self.bad += 1
        found = sorted(sum(self.ranks.gather(bad_samples(batch)), []))
        where = f"NaN or infinity in the samples {found[:10]}" if found else f"samples {batch.ids[:10].tolist()} ..."
        self.say(f"step {self.number}: the gradient was not finite; the update was left out ({where})")
        if self.ranks.first:
            self.folder.append({"step": self.number, "left_out": True, "samples": found or batch.ids[:10].tolist()})
        if self.bad >= self.settings.bad_steps:
            raise UserError(
                "a finite gradient",
                f"{self.bad} in a row that were not, the last with {where}",
                "The weights and the last checkpoint are sound. Look at those samples, or lower train.rate.",
            )

    def _log(self, board: Board | None) -> None:
        steps, tokens, when = self.since
        fine = max(1, steps)
        loss, norm = (float(value) / fine for value in self.sums.tolist())
        loss, tokens_all = self.ranks.sum(loss, tokens)
        now = time.monotonic()
        record = {
            "step": self.number,
            "epoch": self.number / self.order.batches,
            "loss": loss,
            "norm": norm,
            "rate": float(self.optimizer.param_groups[0]["lr"]),
            "tokens_per_s": tokens_all / max(now - when, 1e-9),
        }
        self.sums.zero_()
        self.since = (0, 0, now)
        if self.ranks.first:
            assert board is not None
            self.folder.append(record)
            self.teller.step(self.number, record)
            board.add(record)

    # Judging and saving

    def _judge(self, board: Board | None) -> bool:
        """Judge the model; keep it if it is the best; return whether the training should stop early."""
        part = "valid" if "valid" in self.assembly.parts() else "train"
        began = time.monotonic()
        found = self.judgement(part, limit=None if part == "valid" else 1024)
        better = self._better(found.scores)
        if better:
            self.best, self.worse = {"step": self.number, "scores": found.scores}, 0
        else:
            self.worse += 1
        weights = self.kept_weights() if better else {}
        if self.ranks.first:
            record = {"step": self.number, **{f"{part}_{name}": value for name, value in found.scores.items()}}
            self.folder.append(record)
            self.teller.scores(self.number, found.scores, better)
            assert board is not None
            board.add(record)
            if better:
                save_weights(self.folder.model, weights, {"step": self.number, "scores": found.scores})
        self.since = (self.since[0], self.since[1], self.since[2] + time.monotonic() - began)  # judging is not training
        if self.settings.patience and self.worse >= self.settings.patience:
            self.say(f"no better {self.settings.best} in {self.worse} evaluations: stopping early")
            return True
        return False

    def judgement(self, part: str, limit: int | None = None) -> Judgement:
        """The scores of a part of the data, with the averaged weights where there are such."""
        current = self._swap(self.average) if self.average else {}
        try:
            return judge(
                self.step,
                self.assembly,
                self.assembly.dataset(part),
                ranks=self.ranks,
                device=self.ranks.device,
                batch=max(self.settings.batch, 64),
                limit=limit,
                precision=self.updater.precision,
            )
        finally:
            if current:
                self._swap(current)

    def _swap(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Put other weights into the model; the ones it had are returned."""
        model = self.step.model
        had = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(weights[name])
        return had

    def _better(self, scores: dict[str, float]) -> bool:
        name = self.settings.best
        one_of("train.best", name, scores)
        if not self.best:
            return True
        new, old = scores[name], self.best["scores"][name]
        lower = name == "loss" or METRICS[name].better == "lower"
        return new < old if lower else new > old

    def kept_weights(self) -> dict[str, Tensor]:
        """The weights that are judged: averaged where asked for, whole whatever the ranks hold."""
        return {name: whole(weight).cpu() for name, weight in {**named(self.step.model), **self.average}.items()}

    def _save(self) -> None:
        """A checkpoint: counters, weights and what the optimizer remembers; the order of the data needs nothing."""
        tensors = {
            "weights": {name: whole(weight) for name, weight in named(self.step.model).items()},
            "optimizer": {key: whole(value) for key, value in optimizer_state(self.optimizer, self.names).items()},
            "average": {name: whole(weight) for name, weight in self.average.items()},
            "log": {"sums": self.sums},
        }
        state = {
            "best": self.best,
            "worse": self.worse,
            "bad": self.bad,
            "micro": self.updater.micro,
            "early": self.early,
            "since": self.since[0],
        }
        if self.ranks.first:
            keep = max(self.settings.keep, self.settings.average_last)
            sync(self.folder.log)
            checkpoint.save(self.folder.checkpoints, self.number, tensors, state, keep=keep)
        self.ranks.wait()

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Go on from a checkpoint."""
        put(self.step.model, saved.tensors["weights"], place, f"a checkpoint at {saved.path}")
        for name, weight in self.average.items():
            weight.copy_(place(saved.tensors["average"][name], weight))
        restore_optimizer(self.optimizer, self.names, saved.tensors["optimizer"], place)
        self.sums.copy_(saved.tensors["log"]["sums"])
        self.number, self.best, self.worse = saved.step, saved.state["best"], saved.state["worse"]
        self.bad, self.updater.micro = saved.state["bad"], saved.state["micro"] or self.settings.micro
        self.early = saved.state["early"]
        self.since = (saved.state["since"], 0, time.monotonic())

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to do."""
        return self.number >= self.total or self.early

    def average_checkpoints(self) -> None:
        """Keep the mean of the last checkpoints instead of the best model, where the recipe says so."""
        if self.settings.average_last and self.ranks.first:
            weights, used = mean_of(self.folder.checkpoints, self.settings.average_last, self.say)
            save_weights(self.folder.model, weights, {"step": self.number, "mean_of": used})
            self.say(f"kept the mean of the checkpoints at steps {', '.join(map(str, used))}")


def _from_others() -> Stop:
    import signal

    stop = Stop()
    stop.signal = signal.SIGTERM
    return stop
