"""Attribution to tokens: attention times gradient, and gradient times input.

    found = attribute(step, assembly, batch)
    found.attention[0], found.gradient[0]        (N,) for the tokens of the first sample

Attention weights alone do not show whether a token matters for the prediction; the gradient does. For classes, it is
the gradient of the log odds of the most likely class, and only positive contributions count. For regression, it is the
gradient of the first target, and contributions of either sign count.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from ..data.random import Floats
from ..errors import UserError
from ..nn import Watch
from ..nn.attention.attention import Attention
from ..nn.heads import Gaussian
from ..objectives.classify import Classify
from ..objectives.regress import Regress
from ..tokens.base import stream_part
from .attention import AttentionMaps, answering_token, choose_stream, eval_mode, evaluation_random, self_attention
from .rollout import follow, follow_samples


class Attributed(NamedTuple):
    """Attributions (N,) of the tokens of each sample, by attention and by gradient.

    `attention` is empty if the stream has no attention maps.
    """

    attention: list[Floats]
    gradient: list[Floats]


def has_single_answer(step: Any, assembly: Assembly) -> bool:
    """Whether the model predicts a class or values for each whole sample."""
    return isinstance(assembly.objective, (Classify, Regress)) and hasattr(step.model, "pool")


def prepare_inputs(step: Any, assembly: Assembly, batch: Batch) -> StreamView:
    """Prepare samples for the model, as in an evaluation."""
    rng = evaluation_random(assembly, batch)
    made = prepare(batch, assembly.tokens, assembly.objective, rng, training=False, counted=False)
    return made.inputs(next(step.model.parameters()).device).view(assembly.objective.stream)


def model_answers(model: Any, view: StreamView, record: Watch | None = None) -> tuple[Tensor, bool]:
    """Predictions of samples, and True for regression (False for classes).

    Classes: log odds (B, classes) of each class against all other classes. Unlike probabilities, log odds do not
    saturate.
    Regression: values (B, values) in standard deviations of the training data.
    """
    pooled = model.pool(model.encode(view, record), record)
    if "class" not in model.heads:
        value = model.heads["value"](pooled)
        if isinstance(value, Gaussian):
            return value.mean.float(), True
        return value[..., value.shape[-1] // 2].float(), True  # the median of the quantiles
    logits = model.heads["class"](pooled).float()
    own = torch.eye(logits.shape[1], dtype=torch.bool, device=logits.device)
    others = logits[:, None].masked_fill(own, -torch.inf).logsumexp(-1)
    return logits - others, False


def weight_by_gradient(weights: Tensor, gradient: Tensor, either: bool = False) -> Tensor:
    """Positive part of gradient times attention (arXiv 2103.15679), for any shape.

    either   return the absolute value instead of the positive part
    """
    found = weights * gradient
    return found.abs() if either else found.clamp(min=0)


def relevance(weighted: Floats) -> Floats:
    """Relevance I + A of a block; A is the mean over heads of `weighted` (H, N, N).

    weighted   self-attention times gradient; the weights (H, 1 + N) of a single pooling query give a row of I + A

    The product over all blocks equals the published update R <- R + A R from R = I.
    """
    a = weighted.mean(0)
    return np.asarray(a + (np.eye(len(a)) if a.ndim == 2 else np.eye(1, len(a))[0]))


def attribute(
    step: Any, assembly: Assembly, batch: Batch, which: NDArray[np.int64] | None = None, stream: str = ""
) -> Attributed:
    """Attribution of predictions to the tokens of samples from a data set.

    which    (B,) index of the class or value to attribute (default: the most likely class, or the first value)
    stream   stream of the tokens (default: the stream of the objective); other streams have only the gradient

    Tokens of several streams in one trunk have only the gradient: attention passes through all streams.
    """
    if not has_single_answer(step, assembly):
        message = f"attribution needs `objective.kind: classify` or `regress`, not `{assembly.recipe.objective.kind}`"
        raise UserError(message, key="objective.kind")
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
        recorded = AttentionMaps(batch, record, int(asks == "class"), asks)
        if len(assembly.tokens) > 1:
            recorded = choose_stream(recorded, stream)
        mixed = getattr(assembly.recipe.model.for_stream(stream), "compress", None)
        joins = assembly.recipe.model.joins_streams and len(assembly.tokens) > 1
        attention = {} if mixed or joins or stream != view.name else recorded.watch.attention
        slopes = torch.autograd.grad(answer.sum(), [entered[0], *attention.values()], allow_unused=True)
    maps = {
        name: weight_by_gradient(a, slope, either)
        for (name, a), slope in zip(attention.items(), slopes[1:])
        if slope is not None  # None for a batch of only padding
    }
    through = follow_samples(recorded, maps, relevance)
    if not any(name not in self_attention(recorded) for name in maps):  # subtract the share of the residual path
        through = [each - follow([np.eye(recorded.front + len(each))], [], len(each), asks) for each in through]
    return Attributed(through, _times_input(entered[0], slopes[0], batch.streams[stream].lengths, either))


def _times_input(x: Tensor, slope: Tensor | None, lengths: Array, either: bool) -> list[Floats]:
    """Gradient times input of every token, sum_d x_d dy/dx_d, by sample.

    either   return the absolute value
    """
    total = torch.zeros(x.shape[:-1]) if slope is None else (x * slope).sum(-1)
    found = (total.abs() if either else total).detach().double().cpu().numpy()
    return [row[:n] for row, n in zip(found, lengths.tolist())]


@contextmanager
def _reference(model: nn.Module) -> Iterator[None]:
    """Context manager: use the reference kernel, for gradients of attention weights."""
    kernels = {module: module.kernel for module in model.modules() if isinstance(module, Attention)}
    try:
        for module in kernels:
            module.kernel = "reference"
        yield
    finally:
        for module, kernel in kernels.items():
            module.kernel = kernel


@contextmanager
def _watch_entrance(entrance: nn.Module) -> Iterator[list[Tensor]]:
    """Context manager: record embedded tokens as leaf tensors with gradients."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, given: Any, x: Tensor) -> Tensor:
        kept.append(x.detach().requires_grad_())
        return kept[-1]

    hook = entrance.register_forward_hook(keep)
    try:
        yield kept
    finally:
        hook.remove()
