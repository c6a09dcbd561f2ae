"""Zero-shot classification, with a text description of each class.

found = zero_shot(Run("runs/coca"), table, {"disc": ["a red disc", "a blue disc"], "star": ["a red star"]})
found.names[found.probabilities.argmax(1)]

`sciformer predict RUN FILES --classes "a red disc" "a blue star"` writes the result as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..data.columns import Array, Samples
from ..errors import UserError
from ..files.tables import create_table
from ..tokens.protocols import Textual
from .embed import embed
from .predictions import add_predictions

if TYPE_CHECKING:
    from ..run import Run

POOL = "projection"


@dataclass(frozen=True)
class ZeroShot:
    """Result of a zero-shot classification.

    names           (C,) names of the classes
    probabilities   (n, C) probabilities of the classes for each sample
    samples         columns of the samples
    """

    names: Array
    probabilities: Array
    samples: dict[str, Array]

    @property
    def answers(self) -> Array:
        """Most probable class (n,) of each sample."""
        found: Array = self.names[self.probabilities.argmax(1)]
        return found


def zero_shot(
    run: Run,
    what: Any,
    prompts: Mapping[str, Sequence[str]],
    batch: int = 64,
    accept_drift: bool = False,
    log: Callable[[str], None] | None = None,
) -> ZeroShot:
    """Classify samples by the similarity of their embeddings to embeddings of texts.

        p = softmax over classes of z . c / t

    Here z is the unit vector of a sample, c the normalised mean of the unit vectors of the texts of a class, and t the
    temperature of the contrast (arXiv 2103.00020).

    what      samples: files, a table of columns or a data frame; their texts are not read
    prompts   one or more texts for each class
    batch     number of samples in a batch
    accept_drift  classify even if the scale of a column differs from the training data
    log       function for notes on data unlike the training data (default: the notes become warnings)
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
    found = embed(run, what, POOL, stream=stream, batch=batch, accept_drift=accept_drift, log=log)
    with torch.no_grad():
        scale = float(objective.scale(run.model, (stream, text)))
    logits = scale * found.vectors.astype(np.float64) @ means.T
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return ZeroShot(np.array(list(prompts)), powers / powers.sum(1, keepdims=True), found.samples)


def write_classes(
    run: Run,
    files: Sequence[str | Path],
    out: Path,
    classes: Sequence[str],
    overwrite: bool = False,
    accept_drift: bool = False,
    log: Callable[[str], None] | None = None,
) -> int:
    """Write a table with the zero-shot classes of samples; return the number of rows.

    The table has the columns of the samples, the most probable class, and the probabilities of all classes.

    classes   descriptions of the classes: TEXT, or NAME=TEXT; texts with the same name describe one class
    """
    prompts = parse_classes(classes)
    with create_table(out, overwrite) as file:
        found = zero_shot(run, files, prompts, accept_drift=accept_drift, log=log)
        made = {**found.samples, "class": found.answers, "probabilities": found.probabilities.astype(np.float32)}
        add_predictions(file, made, SimpleNamespace(classes=found.names.tolist()))
    return file.count


def parse_classes(words: Sequence[str]) -> dict[str, list[str]]:
    """Texts of each class, from TEXT or NAME=TEXT."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not name or (equals and not text):
            message = f"--classes {word!r} describes no class"
            raise UserError(message, hint="Write a text, or NAME=TEXT.", key="--classes")
        found.setdefault(name, []).append(text or name)
    if len(found) < 2:
        message = f"--classes needs the texts of two classes or more, not {len(found)}"
        raise UserError(message, hint='For example: --classes "a red disc" "a blue star"', key="--classes")
    return found


def _listed(texts: Sequence[str]) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts


def _streams(run: Run) -> tuple[str, str]:
    """Names of the stream of the samples and of the stream of the texts."""
    tokens, kind = run.assembly.tokens, run.assembly.objective.kind
    if not hasattr(run.assembly.objective, "scale") or len(tokens) != 2:
        message = f"zero-shot classification needs a contrast of samples and texts, not `objective.kind: {kind}`"
        raise UserError(f"{message} with the streams {', '.join(tokens)}", key="objective.kind")
    texts = [name for name, one in tokens.items() if isinstance(one, Textual)]
    if not texts:
        message = "zero-shot classification needs a stream of texts, but the streams have the tokens"
        raise UserError(f"{message} {', '.join(one.kind for one in tokens.values())}", key="tokens")
    text = texts[-1]
    return next(name for name in tokens if name != text), text
