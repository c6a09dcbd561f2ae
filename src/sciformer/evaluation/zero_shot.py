"""Zero-shot classification: classes are described by texts, without labels for training.

found = zero_shot(Run("runs/coca"), table, {"disc": ["a red disc", "a blue disc"], "star": ["a red star"]})
found.names[found.probabilities.argmax(1)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ..data.columns import Array, Samples
from ..errors import UserError
from ..tokens.protocols import Textual
from .embed import embed

if TYPE_CHECKING:
    from ..run import Run

POOL = "projection"


class ZeroShot(NamedTuple):
    """Class names (C,), and the probabilities (n, C) of the classes for each sample."""

    names: Array
    probabilities: Array


def zero_shot(run: Run, what: Any, prompts: Mapping[str, Sequence[str]], batch: int = 64) -> ZeroShot:
    """Classify samples by the similarity of their vectors to the vectors of texts (arXiv 2103.00020).

        p = softmax over classes of z . c / t

    Here z is the unit vector of a sample, c the normalised mean of the unit vectors of the texts of a class, and t the
    temperature of the contrast.

    what      samples: files, a table of columns or a data frame; texts in it are not read
    prompts   one or more texts for each class
    """
    objective: Any = run.assembly.objective
    stream, text = _streams(run)
    if len(prompts) < 2:
        raise UserError(f"zero-shot classification needs two classes or more, not {len(prompts)}")
    texts = [str(one) for some in prompts.values() for one in _listed(some)]
    for name, some in prompts.items():
        if not len(some):
            raise UserError(f"the class {name} has no text", hint="Describe each class by one or more texts.")
    column = run.assembly.tokens[text].source_columns[0]
    counts = [len(_listed(some)) for some in prompts.values()]
    each = embed(run, Samples({column: np.array(texts)}), POOL, stream=text, batch=batch).vectors.astype(np.float64)
    means = np.stack([part.mean(0) for part in np.split(each, np.cumsum(counts)[:-1])])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    vectors = embed(run, what, POOL, stream=stream, batch=batch).vectors.astype(np.float64)
    with torch.no_grad():
        scale = float(objective.scale(run.model, (stream, text)))
    logits = scale * vectors @ means.T
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return ZeroShot(np.array(list(prompts)), powers / powers.sum(1, keepdims=True))


def _listed(texts: Sequence[str]) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts


def _streams(run: Run) -> tuple[str, str]:
    """Names of the stream of the samples and of the stream of the texts."""
    tokens, kind = run.assembly.tokens, run.assembly.objective.kind
    if not hasattr(run.assembly.objective, "scale") or len(tokens) != 2:
        message = f"zero-shot classification needs a contrast of samples and texts, not `objective.kind: {kind}`"
        raise UserError(f"{message} with {len(tokens)} stream of tokens", key="objective.kind")
    texts = [name for name, one in tokens.items() if isinstance(one, Textual)]
    if not texts:
        message = "zero-shot classification needs a stream of texts, but the streams have the tokens"
        raise UserError(f"{message} {', '.join(one.kind for one in tokens.values())}", key="tokens")
    text = texts[-1]
    return next(name for name in tokens if name != text), text
