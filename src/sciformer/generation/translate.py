"""Translation by an encoder-decoder or by a prompted decoder.

A prompted decoder is trained on `source <sep> target`. The source of an encoder-decoder may be any kind of tokens: a
model of patches and words writes captions.

    translate(Run("runs/translation"), ["Two dogs play in the snow."])
    translate(Run("runs/captions"), images)

Samples are translated in batches of similar length; the translations are returned in the order of the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..assembly import Assembly
from ..data.batch import Batch, Stream, StreamView
from ..data.columns import Array, Lists, Table, rows_of
from ..data.dataset import Dataset
from ..data.readers.text_parts import strings
from ..data.source import Source, pieces
from ..errors import UserError
from ..metrics.text import bleu, chrf, exact_match
from ..models.encoder_decoder import SOURCE, TARGET
from ..run import Run
from ..tokens.base import Tokens
from ..tokens.protocols import Textual, Windowed
from .beam_search import beam_search

MAX_BATCH_TOKENS = 8192  # tokens of sources in a batch, padding included
OnProgress = Callable[[int, int], None]


def check_list(what: Any) -> None:
    """Refuse a single string in the place of a list of texts or files."""
    if isinstance(what, str):
        message = "the samples to translate must be a list, not a string"
        raise UserError(message, hint="Write [text], or [file].")


def translate(
    run: Run,
    what: Any,
    *,
    beam: int | None = None,
    penalty: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> list[str]:
    """Translations of lines or of samples, in their order; an empty line stays empty.

    what           list of lines; for sources that are not text: files, a table, an array or an opened source
    beam           number of hypotheses (default: `objective.beam` of the recipe)
    penalty        length penalty (default: `objective.penalty` of the recipe)
    on_progress    called with the numbers of finished samples and of all samples
    """
    choices = beam, penalty
    if isinstance(source_tokens(run.assembly), Textual):
        return translate_lines(run.model, run.assembly, run.device, what, *choices, on_progress)
    opened = open_sources(run, what)
    answers: list[str] = []
    total = sum(opened.sizes)
    on_progress(0, total)
    for table in pieces(opened):

        def tell(now: int, rows: int, done: int = len(answers)) -> None:
            on_progress(done + now, total)

        answers += translate_table(run.model, run.assembly, run.device, table, *choices, tell)
    return answers


def open_sources(run: Run, what: Any) -> Source:
    """Source of samples to translate, with or without target columns."""
    check_translates(run.assembly)
    return run.source(what, streams=(SOURCE,))


def translate_lines(
    model: Any,
    assembly: Assembly,
    device: torch.device,
    lines: Sequence[str],
    beam: int | None = None,
    penalty: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> list[str]:
    """Translate lines of text like `translate`, but without a run."""
    return translate_table(model, assembly, device, line_table(assembly, lines), beam, penalty, on_progress)


def line_table(assembly: Assembly, lines: Sequence[str]) -> Table:
    """Table with lines of text as source column."""
    names = source_tokens(assembly).source_columns
    return dict.fromkeys(names if SOURCE in assembly.tokens else names[:1], strings(list(lines)))


def check_translates(assembly: Assembly) -> None:
    """Refuse runs not trained for translation."""
    objective = assembly.objective
    if not hasattr(objective, "penalty"):
        message = f"the run was not trained for translation: its recipe has `objective.kind: {objective.kind}`"
        raise UserError(message, hint=f"Use `{objective.usage}`.", key="objective.kind")


@torch.inference_mode()
def translate_table(
    model: Any,
    assembly: Assembly,
    device: torch.device,
    table: Table,
    beam: int | None = None,
    penalty: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> list[str]:
    """Translate the rows of a table like `translate`, but without a run."""
    check_translates(assembly)
    objective: Any = assembly.objective
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
    answers, rows = [""] * rows_of(table), writer.rows(table)
    sources = writer.encode(table)
    told = len(answers) - len(rows)
    on_progress(told, len(answers))
    for some in writer.batches(rows, sources.lengths, beam):
        first = writer.begin(sources.take(np.array(some))).float().log_softmax(-1)
        longest = torch.tensor([writer.longest(int(sources.lengths[row]), objective.more) for row in some])
        found = beam_search(writer.next_logits, writer.cache.reorder, first, writer.end, longest, **options)
        for row, (best, *_) in zip(some, found):
            answers[row] = " ".join(writer.tokens.decode(best.ids).splitlines())  # one line
        told += len(some)
        on_progress(told, len(answers))
    model.train(was)
    return answers


class Writer:
    """Base class of the two kinds of translators: encoder-decoder and decoder."""

    cache: Any
    """Keys and values of all earlier tokens."""

    def __init__(self, model: Any, assembly: Assembly, device: torch.device) -> None:
        self.model, self.device, self.assembly = model, device, assembly
        self.source, self.tokens = source_tokens(assembly), _target_tokens(assembly)
        self.end = self.tokens.special_id("end")

    def rows(self, table: Table) -> list[int]:
        """Rows to translate: all samples, but no blank texts."""
        if not isinstance(self.source, Textual):
            return list(range(rows_of(table)))
        return [row for row, text in enumerate(texts_of(table, self.source.source_columns[0])) if text.strip()]

    def encode(self, table: Table) -> Stream:
        """Tokens of the sources as input of the model."""
        raise NotImplementedError

    def begin(self, sources: Stream) -> Tensor:
        """Read the sources; return logits (B, V) of the first token."""
        raise NotImplementedError

    def step(self, ids: Tensor, *memory: Any) -> Tensor:
        """Read ids (R, N) of R hypotheses; return logits (R, V) of the next token."""
        hidden = self.model.decode(StreamView({"ids": ids}, None), *memory, cache=self.cache)
        return self.model.readout(hidden[:, -1])

    def next_logits(self, last: Tensor) -> Tensor:
        """Logits (R, V) of the next token, after the last tokens (R,)."""
        return self.step(last[:, None])

    def longest(self, length: int, more: int) -> int:
        """Maximum number of tokens of the translation of a source of `length` tokens."""
        raise NotImplementedError

    def batches(self, rows: list[int], lengths: Array, beam: int) -> Iterator[list[int]]:
        """Yield batches of rows with sources of similar length."""
        batch: list[int] = []
        for row in sorted(rows, key=lambda row: -lengths[row]):  # longest first: a lack of memory shows at once
            if batch and (len(batch) + 1) * lengths[batch[0]] * beam > MAX_BATCH_TOKENS:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


class EncoderDecoderWriter(Writer):
    """Translation by an encoder-decoder; the target begins with the begin token."""

    def encode(self, table: Table) -> Stream:
        return self.source.normalise(cut_to_window(self.source, self.source.tokenize(table)))

    def longest(self, length: int, more: int) -> int:
        most = self.tokens.window - 1  # positions beyond the window may not exist
        return min(length + more, most) if isinstance(self.source, Textual) else most

    def begin(self, sources: Stream) -> Tensor:
        batch = Batch({SOURCE: sources}, aside={SOURCE: self.source.host_columns})
        self.cache = self.model.cache()
        start = torch.full((len(sources), 1), self.tokens.special_id("begin"), device=self.device)
        return super().step(start, self.model.encode(batch.inputs(self.device).stream))

    def step(self, ids: Tensor, *memory: Any) -> Tensor:
        return super().step(ids, None)  # the cache holds the source


def cut_to_window(tokens: Tokens, stream: Stream) -> Stream:
    """Truncate samples to the window of the tokens, as in training.

    Windows of several axes are refused.
    """
    shape = tokens.window_shape if isinstance(tokens, Windowed) else None
    if shape is None:
        return stream
    if len(shape) > 1:
        message = f"samples that are cut into windows cannot be translated (tokens.{SOURCE}.window)"
        raise UserError(message, hint="Train without this key.", key=f"tokens.{SOURCE}.window")
    return stream.cut(stream.starts, np.minimum(stream.lengths, shape[0]))


class PromptWriter(Writer):
    """Translation by a decoder; the prompt is the source and a separator."""

    def __init__(self, model: Any, assembly: Assembly, device: torch.device) -> None:
        (tokens,) = assembly.tokens.values()
        if len(tokens.source_columns) < 2:
            message = f"tokens.column must name two columns, source and target, not {', '.join(tokens.source_columns)}"
            raise UserError(message, key="tokens.column")
        super().__init__(model, assembly, device)

    def encode(self, table: Table) -> Stream:
        begin = [self.tokens.special_id("begin")] if self.tokens.has_marker("begin") else []
        most = max(1, self.tokens.window // 2 - 2)  # leave room for the translation
        ends = [self.tokens.special_id("separator")]
        texts = texts_of(table, self.tokens.source_columns[0])
        prompts = [np.concatenate([begin, self.tokens.encode(text)[:most], ends]) for text in texts]
        ids = np.concatenate([np.zeros(0), *prompts]).astype(np.int64)
        return Stream({"ids": ids}, np.array([len(prompt) for prompt in prompts], np.int64))

    def batches(self, rows: list[int], lengths: Array, beam: int) -> Iterator[list[int]]:
        """Batches of prompts of equal length, because padding would shift positions."""
        same: dict[int, list[int]] = {}
        for row in rows:
            same.setdefault(int(lengths[row]), []).append(row)
        for length in sorted(same, reverse=True):
            yield from super().batches(same[length], lengths, beam)

    def begin(self, sources: Stream) -> Tensor:
        self.cache = self.model.trunk.cache()
        return self.step(torch.as_tensor(sources.columns["ids"].reshape(len(sources), -1), device=self.device))

    def longest(self, length: int, more: int) -> int:
        return max(0, min(length + more, self.tokens.window - length - 1))


# Scores


class Translated(NamedTuple):
    """Sources, translations and references of a data set, with their scores.

    Sources that are not text are the numbers of the samples.
    """

    source: list[str]
    translation: list[str]
    reference: list[str]
    scores: dict[str, float]


def score_translations(model: Any, assembly: Assembly, dataset: Dataset, device: torch.device) -> Translated:
    """Translate a data set and compare the translations with its references."""
    name, target = columns_of(assembly)
    source: list[str] = []
    reference: list[str] = []
    translation: list[str] = []
    written = isinstance(source_tokens(assembly), Textual)
    for table in pieces(dataset.source):
        reference += texts_of(table, target)
        if written:
            source += texts_of(table, name)
        else:
            translation += translate_table(model, assembly, device, table)
    if written:
        translation = translate_lines(model, assembly, device, source)
    source = source or list(map(str, range(len(translation))))
    objective: Any = assembly.objective
    if _target_tokens(assembly).lower:
        reference = [text.lower() for text in reference]
    scores = {"bleu": bleu(translation, reference, objective.bleu), "chrf": chrf(translation, reference)}
    scores["exact_match"] = exact_match(translation, reference)
    return Translated(source, translation, reference, scores)


def texts_of(table: Table, name: str) -> list[str]:
    """Texts of a column; lists of words are joined by spaces."""
    if name not in table:
        raise UserError(
            f"the data have no column `{name}` with texts or references; their columns are {', '.join(table)}"
        )
    column = table[name]
    if not isinstance(column, Lists):
        return list(map(str, column))
    split = np.split(column.values, column.lengths.cumsum() - column.lengths)[1:]
    return [" ".join(map(str, words)) for words in split]


def columns_of(assembly: Assembly) -> tuple[str, str]:
    """Names of the source column and of the target column."""
    source, target = source_tokens(assembly).source_columns, _target_tokens(assembly).source_columns
    return str(source[0]), str(target[0 if TARGET in assembly.tokens else -1])


def source_tokens(assembly: Assembly) -> Tokens:
    """Tokens of the source: the stream `source`, or the only stream."""
    return assembly.tokens.get(SOURCE, next(iter(assembly.tokens.values())))


def _target_tokens(assembly: Assembly) -> Textual:
    return Textual.require(assembly.tokens.get(TARGET, next(iter(assembly.tokens.values()))), "translation")
