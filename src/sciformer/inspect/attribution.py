"""Which tokens an answer comes from: attention weighted by gradients, and gradient times input.

    found = attribute(step, assembly, batch)
    found.attention[0], found.gradient[0]        (N,) for the tokens of the first sample

Attention alone says where a model looks, not whether it matters for this answer; the gradient says how the answer would
change. Of classes, what speaks for the likeliest one against all others counts: the answer is its log odds. Of values,
what moves the first one either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..assembly import Assembly
from ..data.batch import Batch, StreamView
from ..data.columns import Array
from ..data.prepare import prepare
from ..errors import UserError
from ..nn import Watch
from ..nn.attention.attention import Attention
from ..nn.heads import Gaussian
from ..objectives.classify import Classify
from ..objectives.regress import Regress
from ..tokens.base import stream_part
from .attention import (
    AttentionMaps,
    answering_token,
    choose_stream,
    eval_mode,
    evaluation_random,
    self_attention,
)
from .rollout import follow, follow_samples

Floats = NDArray[np.float64]


class Attributed(NamedTuple):
    """For every sample what each of its tokens (N,) gives to its answer; of attention none where there is none."""

    attention: list[Floats]
    gradient: list[Floats]


def has_single_answer(step: Any, assembly: Assembly) -> bool:
    """Whether a model has one answer for each sample, which can be followed back: a class, or values."""
    return isinstance(assembly.objective, (Classify, Regress)) and hasattr(step.model, "pool")


def prepare_inputs(step: Any, assembly: Assembly, batch: Batch) -> StreamView:
    """Samples, as they come from a data set, as the model takes them when it is judged."""
    rng = evaluation_random(assembly, batch)
    made = prepare(batch, assembly.tokens, assembly.objective, rng, training=False, counted=False)
    return made.inputs(next(step.model.parameters()).device).view(assembly.objective.stream)


def model_answers(model: Any, view: StreamView, record: Watch | None = None) -> tuple[Tensor, bool]:
    """What a model says of samples, and whether these are values: the log odds (B, classes) of each class against all
    others, which do not level off as probabilities do; or the values (B, values) in deviations of the training data."""
    pooled = model.pool(model.encode(view, record), record)
    if "class" not in model.heads:
        value = model.heads["value"](pooled)
        if isinstance(value, Gaussian):
            return value.mean.float(), True
        return value[..., value.shape[-1] // 2].float(), True  # of quantiles, the middle one
    logits = model.heads["class"](pooled).float()
    own = torch.eye(logits.shape[1], dtype=torch.bool, device=logits.device)
    others = logits[:, None].masked_fill(own, -torch.inf).logsumexp(-1)
    return logits - others, False


def weight_by_gradient(weights: Tensor, gradient: Tensor, either: bool = False) -> Tensor:
    """The positive part of gradient times attention (arXiv 2103.15679), of any shape; its size with `either`."""
    found = weights * gradient
    return found.abs() if either else found.clamp(min=0)


def relevance(weighted: Floats) -> Floats:
    """I + mean over heads of weighted self-attention (H, N, N); of a query (H, 1 + N) its row of it.

    The product of these over all blocks is R <- R + A R from R = I, as published.
    """
    a = weighted.mean(0)
    if a.ndim == 2:
        return np.asarray(a + np.eye(len(a)))
    a[0] += 1
    return np.asarray(a)


def attribute(
    step: Any, assembly: Assembly, batch: Batch, which: NDArray[np.int64] | None = None, stream: str = ""
) -> Attributed:
    """What the tokens of samples, as they come from a data set, give to the answers of a model.

    which    (B,) the class, or the value, that is asked about; the likeliest class or the first value unless given
    stream   of these tokens (default: the one that the objective asks about); of others, attention is not followed
    """
    if not has_single_answer(step, assembly):
        kind = assembly.recipe.objective.kind
        raise UserError(
            f"objective.kind must be classify or regress, with one answer for each sample, not {kind}",
            key="objective.kind",
        )
    model, record = step.model, Watch(hidden=False)
    view = prepare_inputs(step, assembly, batch)
    stream = stream or view.name
    entrance = stream_part(model.entrance, stream)
    with eval_mode(step), torch.enable_grad(), _reference(model), _watch_entrance(entrance) as entered:
        answer, either = model_answers(model, view, record)
        place = answer.argmax(1) if which is None and not either else torch.zeros(len(answer), dtype=torch.int64)
        if which is not None:
            place = torch.as_tensor(np.asarray(which, np.int64))
        answer = answer.gather(1, place.to(answer.device)[:, None])
        asks = answering_token(model, stream)
        look = AttentionMaps(batch, record, int(asks == "class"), asks)
        if len(assembly.tokens) > 1:
            look = choose_stream(look, stream)
        mixed = getattr(assembly.recipe.model.for_stream(stream), "compress", None)
        attention = {} if mixed or stream != view.name else look.watch.attention
        slopes = torch.autograd.grad(answer.sum(), [entered[0], *attention.values()], allow_unused=True)
    maps = {
        name: weight_by_gradient(a, slope, either)
        for (name, a), slope in zip(attention.items(), slopes[1:])
        if slope is not None  # a map of padding alone
    }
    through = follow_samples(look, maps, relevance)
    if not any(name not in self_attention(look) for name in maps):  # what a token gives by being there is no attention
        through = [each - follow([np.eye(look.front + len(each))], [], len(each), asks) for each in through]
    return Attributed(through, _times_input(entered[0], slopes[0], batch.streams[stream].lengths, either))


def _times_input(x: Tensor, slope: Tensor | None, lengths: Array, either: bool) -> list[Floats]:
    """sum_d x_d dy/dx_d of every token, by sample; its size with `either`."""
    total = torch.zeros(x.shape[:-1]) if slope is None else (x * slope).sum(-1)
    found = (total.abs() if either else total).detach().double().cpu().numpy()
    return [row[:n] for row, n in zip(found, lengths.tolist())]


@contextmanager
def _reference(model: nn.Module) -> Iterator[None]:
    """The weights that are watched are those that are used, so that gradients can be asked of them."""
    kernels: Mapping[Attention, str] = {
        module: module.kernel for module in model.modules() if isinstance(module, Attention)
    }
    try:
        for module in kernels:
            module.kernel = "reference"
        yield
    finally:
        for module, kernel in kernels.items():
            module.kernel = kernel


@contextmanager
def _watch_entrance(entrance: nn.Module) -> Iterator[list[Tensor]]:
    """What an entrance made of tokens, as vectors whose gradient can be asked for."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, given: Any, x: Tensor) -> Tensor:
        kept.append(x.detach().requires_grad_())
        return kept[-1]

    hook = entrance.register_forward_hook(keep)
    try:
        yield kept
    finally:
        hook.remove()
