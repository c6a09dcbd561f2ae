"""Translation by an encoder-decoder or by a prompted decoder.

A prompted decoder is trained on `source <sep> target`.

    translate(Run("runs/translation"), ["Two dogs play in the snow."])

Lines are translated in batches of similar length; the translations are returned in the order of the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..assembly import Assembly
from ..data.batch import Batch, Stream, StreamView
from ..data.columns import Lists
from ..data.dataset import Dataset
from ..data.readers.text_parts import strings
from ..data.source import pieces
from ..errors import UserError
from ..metrics.text import bleu, chrf
from ..models.encoder_decoder import SOURCE, TARGET
from ..run import Run
from ..tokens.protocols import Textual
from .beam_search import beam_search

MAX_BATCH_TOKENS = 8192  # tokens of sources in a batch, padding included
OnProgress = Callable[[int, int], None]


def translate(
    run: Run,
    lines: Sequence[str],
    *,
    beam: int | None = None,
    penalty: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> list[str]:
    """Translations of lines, in their order; an empty line stays empty.

    beam           number of hypotheses (default: `objective.beam` of the recipe)
    penalty        length penalty (default: `objective.penalty` of the recipe)
    on_progress    called with the numbers of finished lines and of all lines
    """
    return translate_with(run.model, run.assembly, run.device, lines, beam, penalty, on_progress)


@torch.inference_mode()
def translate_with(
    model: Any,
    assembly: Assembly,
    device: torch.device,
    lines: Sequence[str],
    beam: int | None = None,
    penalty: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> list[str]:
    """Translate like `translate`, with a model and its assembly instead of a run."""
    objective: Any = assembly.objective
    if not hasattr(objective, "penalty"):
        message = f"the run was not trained for translation: its recipe has `objective.kind: {objective.kind}`"
        raise UserError(message, hint=f"Use `{objective.usage}`.", key="objective.kind")
    beam = objective.beam if beam is None else beam
    penalty = objective.penalty if penalty is None else penalty
    if beam < 1:
        raise UserError(f"the beam must be at least 1 hypothesis, not {beam}", key="--beam")
    if not 0 <= penalty < np.inf:
        raise UserError(f"the length penalty must be 0 or more and finite, not {penalty}", key="--penalty")
    was = model.training
    model.eval()
    writer = (EncoderDecoderWriter if SOURCE in assembly.tokens else PromptWriter)(model, assembly, device)
    allowed = torch.as_tensor(np.asarray(writer.tokens.writable))
    options: dict[str, Any] = {"beam": beam, "penalty": penalty, "allowed": allowed}
    sources = {row: writer.encode(line) for row, line in enumerate(lines) if line.strip()}
    answers = {row: "" for row in range(len(lines)) if row not in sources}
    on_progress(len(answers), len(lines))
    for rows in writer.batches(list(sources), sources, beam):
        first = writer.begin([sources[row] for row in rows]).float().log_softmax(-1)
        longest = torch.tensor([writer.longest(sources[row], objective.more) for row in rows])
        found = beam_search(writer.next_logits, writer.cache.reorder, first, writer.end, longest, **options)
        for row, (best, *_) in zip(rows, found):
            answers[row] = " ".join(writer.tokens.decode(best.ids).splitlines())  # one line
        on_progress(len(answers), len(lines))
    model.train(was)
    return [answers[row] for row in range(len(lines))]


class Writer:
    """Base class of the two kinds of translators: encoder-decoder and decoder."""

    cache: Any
    """Keys and values of all earlier tokens."""

    def __init__(self, model: Any, assembly: Assembly, device: torch.device) -> None:
        self.model, self.device, self.assembly = model, device, assembly
        self.tokens = _target_tokens(assembly)
        self.end = self.tokens.special_id("end")

    def encode(self, line: str) -> Any:
        """Ids of a source line, in the form that the model reads."""
        raise NotImplementedError

    def begin(self, sources: list[Any]) -> Tensor:
        """Read the source lines; return logits (B, V) of the first target token."""
        raise NotImplementedError

    def step(self, ids: Tensor, *memory: Any) -> Tensor:
        """Read ids (R, N) of R hypotheses; return logits (R, V) of the next token."""
        hidden = self.model.decode(StreamView({"ids": ids}, None), *memory, cache=self.cache)
        return self.model.readout(hidden[:, -1])

    def next_logits(self, last: Tensor) -> Tensor:
        """Logits (R, V) of the next token, after the last tokens (R,)."""
        return self.step(last[:, None])

    def longest(self, source: Any, more: int) -> int:
        """Maximum number of tokens of the translation."""
        raise NotImplementedError

    def batches(self, rows: list[int], sources: Mapping[int, Any], beam: int) -> Iterator[list[int]]:
        """Yield batches of rows whose sources have similar lengths."""
        batch: list[int] = []
        for row in sorted(rows, key=lambda row: -len(sources[row])):  # longest first: a lack of memory shows at once
            if batch and (len(batch) + 1) * len(sources[batch[0]]) * beam > MAX_BATCH_TOKENS:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


class EncoderDecoderWriter(Writer):
    """Translation by an encoder-decoder; the target begins with the begin token."""

    def encode(self, line: str) -> Any:
        source: Any = self.assembly.tokens[SOURCE]
        stream = source.tokenize({name: strings([line]) for name in source.source_columns})
        return stream.columns["ids"][: source.window].astype(np.int64)

    def longest(self, source: Any, more: int) -> int:
        return min(len(source) + more, self.tokens.window - 1)  # positions beyond the window may not exist

    def begin(self, sources: list[Any]) -> Tensor:
        lengths = np.array([len(source) for source in sources], np.int64)
        padded = Batch({SOURCE: Stream({"ids": np.concatenate(sources)}, lengths)}).inputs(self.device).stream
        self.cache = self.model.cache()
        start = torch.full((len(sources), 1), self.tokens.special_id("begin"), device=self.device)
        return super().step(start, self.model.encode(padded))

    def step(self, ids: Tensor, *memory: Any) -> Tensor:
        return super().step(ids, None)  # the cache holds the source


class PromptWriter(Writer):
    """Translation by a decoder, whose prompt is the source and a separator."""

    def __init__(self, model: Any, assembly: Assembly, device: torch.device) -> None:
        (tokens,) = assembly.tokens.values()
        if len(tokens.source_columns) < 2:
            message = f"tokens.column must name two columns, source and target, not {', '.join(tokens.source_columns)}"
            raise UserError(message, key="tokens.column")
        super().__init__(model, assembly, device)

    def encode(self, line: str) -> Any:
        begin = [self.tokens.special_id("begin")] if self.tokens.has_marker("begin") else []
        ids = self.tokens.encode(line)[: max(1, self.tokens.window // 2 - 2)]  # leave room for the translation
        return np.concatenate([begin, ids, [self.tokens.special_id("separator")]]).astype(np.int64)

    def batches(self, rows: list[int], sources: Mapping[int, Any], beam: int) -> Iterator[list[int]]:
        """Yield batches of prompts of equal length, because padding would shift positions."""
        same: dict[int, list[int]] = {}
        for row in rows:
            same.setdefault(len(sources[row]), []).append(row)
        for length in sorted(same, reverse=True):
            yield from super().batches(same[length], sources, beam)

    def begin(self, sources: list[Any]) -> Tensor:
        self.cache = self.model.trunk.cache()
        return self.step(torch.as_tensor(np.stack(sources), device=self.device))

    def longest(self, source: Any, more: int) -> int:
        return max(0, min(len(source) + more, self.tokens.window - len(source) - 1))


# Scores


class Translated(NamedTuple):
    """Sources, translations and references of a data set, with their BLEU and chrF."""

    source: list[str]
    translation: list[str]
    reference: list[str]
    scores: dict[str, float]


def score_translations(model: Any, assembly: Assembly, dataset: Dataset, device: torch.device) -> Translated:
    """Translate a data set and compare the translations with its references."""
    names = columns_of(assembly)
    texts: list[list[str]] = [[], []]
    for table in pieces(dataset.source):
        for name, found in zip(names, texts):
            if name not in table:
                raise UserError(
                    f"the data have no column `{name}` with texts or references; their columns are {', '.join(table)}"
                )
            column = table[name]
            if isinstance(column, Lists):
                split = np.split(column.values, column.lengths.cumsum() - column.lengths)[1:]
                found += [" ".join(map(str, words)) for words in split]
            else:
                found += map(str, column)
    source, reference = texts
    translation = translate_with(model, assembly, device, source)
    objective: Any = assembly.objective
    if _target_tokens(assembly).lower:
        reference = [text.lower() for text in reference]
    scores = {"bleu": bleu(translation, reference, objective.bleu), "chrf": chrf(translation, reference)}
    return Translated(source, translation, reference, scores)


def columns_of(assembly: Assembly) -> tuple[str, str]:
    """Names of the source column and of the target column."""
    tokens = assembly.tokens
    source, target = (tokens.get(stream, next(iter(tokens.values()))).source_columns for stream in (SOURCE, TARGET))
    return str(source[0]), str(target[0 if TARGET in tokens else -1])


def _target_tokens(assembly: Assembly) -> Textual:
    return Textual.require(assembly.tokens.get(TARGET, next(iter(assembly.tokens.values()))), "translation")
