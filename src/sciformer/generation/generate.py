"""Generated text of a trained decoder: streamed, or for many prompts at once.

    for piece in generate(Run("runs/gpt"), "Once upon a time", 200, temperature=0.8):
        print(piece, end="", flush=True)
    answers = generate_many(Run("runs/gpt"), ["A cat", "Two dogs"], 100)

The decoding loop is in `decode`, the choice of a token in `sampling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ..assembly import log_nothing
from ..data.batch import Batch
from ..data.columns import Table, rows_of
from ..data.source import Memory
from ..errors import UserError, one_of
from ..nn import Transformer
from ..run import Run
from ..tokens.protocols import Textual
from ..training.step import working_precision
from .decode import Conditioned, RecordedSteps, read_late, search_beams, write
from .detokenize import Line
from .sampling import Sampling, draw_uniforms

MIN_COMPILED_STEPS = 100_000  # minimum number of steps for which compilation saves time
RECORDED_STEPS: WeakKeyDictionary[Run, RecordedSteps] = WeakKeyDictionary()
OnProgress = Callable[[int, int], None]


def generate(
    run: Run,
    prompt: str | None = None,
    length: int = 500,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition: float = 1.0,
    stop: str | Sequence[str] = (),
    beam: int = 1,
    seed: int | None = None,
    precision: str = "auto",
    compiled: bool | None = None,
    beside: Table | None = None,
    log: Callable[[str], None] = log_nothing,
) -> Iterator[str]:
    """Continue a prompt; yield pieces of text.

    prompt       beginning of the text (default: the begin token, or a new line)
    length       maximum number of tokens
    temperature  divides the logits (default: 1); 0 takes the most likely token
    top_k        number of most likely tokens to choose from (default: all)
    top_p        nucleus sampling: choose from the most likely tokens with this total probability (default: all)
    repetition   penalty on earlier tokens (default: 1, no penalty)
    stop         strings that end the text, and are not part of the result (default: none)
    beam         number of hypotheses of a beam search (default: 1, which means sampling)
    seed         seed of the random numbers (default: a new seed in each call)
    precision    data type of the weights: float32, bfloat16, or auto (as in training)
    compiled     whether to compile a step on CUDA (default: only for long texts, where it saves time)
    beside       one sample of all streams besides the text, as columns (default: none)
    """
    sampling = Sampling(temperature, top_k, top_p, repetition)
    author = Author(run, length, sampling, stop, precision, compiled, log, beside=beside)
    ids = author.encode(prompt)
    return iter(author.search([ids], beam)) if beam != 1 else author.stream(ids, draw_uniforms(seed, 1, length))


def generate_many(
    run: Run,
    prompts: Sequence[str | None],
    length: int = 500,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition: float = 1.0,
    stop: str | Sequence[str] = (),
    beam: int = 1,
    seed: int | None = None,
    precision: str = "auto",
    compiled: bool | None = None,
    batch: int = 32,
    beside: Table | None = None,
    log: Callable[[str], None] = log_nothing,
    on_progress: OnProgress = lambda done, total: None,
) -> list[str]:
    """Continue many prompts, `batch` at a time; return texts in the order of prompts.

    Every prompt has its own random numbers. The first prompt gives the same text as `generate` with the same seed.
    `on_progress(done, total)` is called after each batch. See `generate` for the other arguments.
    """
    sampling = Sampling(temperature, top_k, top_p, repetition)
    texts = -(-len(prompts) // max(1, batch))
    author = Author(run, length, sampling, stop, precision, compiled, log, texts, beside)
    if batch < 1:
        raise UserError(f"batch must be at least 1, not {batch}")
    ids = [author.encode(prompt) for prompt in prompts]
    uniform = draw_uniforms(seed, len(prompts), length)
    answers: dict[int, str] = {}
    for rows in author.groups(ids, batch, alike=beam != 1):
        together = [ids[row] for row in rows]
        found = author.search(together, beam) if beam != 1 else author.texts(together, uniform[:, rows])
        answers |= zip(rows, found)
        on_progress(len(answers), len(prompts))
    return [answers[row] for row in range(len(prompts))]


class Author:
    """Generator of texts: a run with a decoder, and the options of generation."""

    def __init__(
        self,
        run: Run,
        length: int,
        sampling: Sampling,
        stop: str | Sequence[str],
        precision: str,
        compiled: bool | None,
        log: Callable[[str], None],
        texts: int = 1,
        beside: Table | None = None,
    ) -> None:
        if length < 1:
            raise UserError(f"the length must be at least 1 token, not {length}", key="--length")
        one_of("the precision", precision, ["auto", "float32", "bfloat16"], key="--precision")
        self.run, self.length, self.sampling, self.log = run, length, sampling, log
        stream, self.tokens = _text_stream(run)
        self.model: Any = _conditioned(run, stream, beside)
        self.window, self.end = self.tokens.window, self.tokens.end_id
        self.stops = [text for text in ([stop] if isinstance(stop, str) else stop) if text]
        allowed = np.array(self.tokens.writable)
        if self.end is not None:
            allowed[self.end] = True
        self.allowed = torch.as_tensor(allowed, device=run.device)
        self.precision = _precision(run, precision)
        self.compiled = length * texts >= MIN_COMPILED_STEPS if compiled is None else compiled

    # The prompt

    def encode(self, prompt: str | None) -> list[int]:
        """Ids of a prompt, with special tokens around it as in training."""
        tokens, specials = self.tokens, self.tokens.specials
        first = [specials["begin"]] if tokens.has_marker("begin") else []
        last = [specials["separator"]] if len(tokens.source_columns) > 1 else []
        if prompt is None or (not prompt and (first or self.end is not None)):
            if not first and self.end is not None:
                first = [self.end]  # the end of one text is the beginning of the next
            return first + last if first else self._line_break()
        ids = tokens.encode(prompt).tolist()
        if not ids:
            raise UserError("the prompt is empty", hint="Leave out --prompt to begin a new line.", key="--prompt")
        if specials.get("unknown", -1) in ids:
            self._check_known(prompt, specials["unknown"])
        return [*first, *ids, *last]

    def _line_break(self) -> list[int]:
        """Ids of a line break.

        If the vocabulary has no line break: ids of a space, or else of the first token of text.
        """
        for letter in "\n ":
            ids: list[int] = self.tokens.encode(letter).tolist()
            if ids and self.tokens.specials.get("unknown", -1) not in ids:
                return ids
        return [int(np.flatnonzero(self.tokens.writable)[0])]

    def _check_known(self, prompt: str, number: int) -> None:
        """Refuse unknown characters in a prompt; unknown words are allowed, but logged."""
        letters = self.tokens.letters == "characters"
        parts = sorted(set(prompt)) if letters else dict.fromkeys(prompt.split())
        strange = [part for part in parts if number in self.tokens.encode(part)]
        if letters:
            message = f"the prompt {prompt[:40]!r} has characters outside the vocabulary: {''.join(strange)!r}"
            raise UserError(message, key="--prompt")
        self.log(f"note: not in the vocabulary: {', '.join(strange) or 'a part of the prompt'}")

    # The text

    def stream(self, ids: list[int], uniform: Tensor) -> Iterator[str]:
        """Yield the pieces of a single text as they are generated."""
        return self.line(ids).pieces(block[0].tolist() for block in self._write([ids], uniform))

    def texts(self, ids: list[list[int]], uniform: Tensor) -> list[str]:
        """Generate the complete texts of several prompts."""
        lines, found = [self.line(one) for one in ids], [""] * len(ids)
        for block in self._write(ids, uniform):
            for row, (line, tokens) in enumerate(zip(lines, block.tolist())):
                found[row] += "" if line.over else line.add(tokens)
            if all(line.over for line in lines):
                break
        return [text + ("" if line.over else line.close()) for text, line in zip(found, lines)]

    @torch.no_grad()
    def search(self, ids: list[list[int]], beam: int) -> list[str]:
        """Continuations of prompts of equal length, found by beam search."""
        if beam < 1:
            raise UserError(f"the beam must be at least 1 hypothesis, not {beam}", key="--beam")
        if self.sampling != Sampling():
            raise UserError(
                "beam search cannot be combined with sampling options",
                hint="Leave out the beam, or leave out temperature, top_k, top_p and repetition.",
                key="--beam",
            )
        ids = [one if len(one) < self.window else one[-max(1, self.window // 2) :] for one in ids]
        longest = min(self.length, max(1, self.window - len(ids[0])))
        if longest < self.length:
            self.log(f"note: beam search stops after {longest} tokens, at the end of the context")
        found = search_beams(self.model, torch.tensor(ids), self.end, longest, self.allowed, beam, self.precision)
        return ["".join(self.line(ids[row]).pieces([one])) for row, one in enumerate(found)]

    def line(self, ids: list[int]) -> Line:
        """Detokenizer for the continuation of a prompt."""
        return Line(self.tokens, [] if len(self.tokens.source_columns) > 1 else ids, self.stops, self.end)

    def groups(self, ids: list[list[int]], batch: int, alike: bool) -> Iterator[list[int]]:
        """Batches of prompts, as indices into `ids`.

        The prompts of a batch have similar lengths. They have equal lengths if `alike` is true, if a text fills the
        window, or if the trunk is not a transformer.
        """
        same: dict[int, list[int]] = {}
        for row in sorted(range(len(ids)), key=lambda row: len(ids[row])):
            fits = len(ids[row]) + self.length <= self.window
            together = fits and not alike and isinstance(self.model.trunk, Transformer)
            same.setdefault(0 if together else min(len(ids[row]), self.window), []).append(row)
        for rows in same.values():
            yield from (rows[start : start + batch] for start in range(0, len(rows), batch))

    def _write(self, ids: list[list[int]], uniform: Tensor) -> Iterator[Tensor]:
        lengths, pads = [len(one) for one in ids], None
        if len(set(lengths)) > 1 and max(lengths) + self.length <= self.window:
            pads = max(lengths) - torch.tensor(lengths)
            ids = [[0] * (max(lengths) - len(one)) + one for one in ids]
        else:
            ids = [one[-self.window :] for one in ids]
        blocks = write(
            self.model,
            torch.tensor(ids),
            self.length,
            self.sampling,
            uniform,
            allowed=self.allowed,
            window=self.window,
            pads=pads,
            precision=self.precision,
            compiled=self.compiled,
            kept=RECORDED_STEPS.setdefault(self.run, {}),
        )
        return read_late(blocks, self.allowed.device)


def _precision(run: Run, asked: str) -> torch.dtype | None:
    """Data type of the weights (auto: as in training on CUDA), or None for no change."""
    settings = run.recipe.train
    if asked != "auto":
        settings = settings.model_copy(update={"precision": asked})
    elif run.device.type != "cuda":
        return None
    return working_precision(settings, run.device)


def _text_stream(run: Run) -> tuple[str, Textual]:
    """Name of the stream of generated text, and its tokens."""
    objective = run.assembly.objective
    name = objective.asked_stream(run.assembly.tokens)
    tokens = Textual.require(run.assembly.tokens[name], "`sciformer generate`")
    if objective.asks != "decode":
        raise UserError(
            f"`model.kind: {run.recipe.model.kind}` cannot continue a text; only a decoder can",
            hint=f"Use `{objective.usage}`.",
            key="model.kind",
        )
    return name, tokens


def _conditioned(run: Run, stream: str, beside: Table | None) -> Any:
    """Model, conditioned on one sample of all streams besides the text."""
    others = {name: tokens for name, tokens in run.assembly.tokens.items() if name != stream}
    table = Memory(beside or {}).table
    if not others and beside:
        raise UserError("`beside` cannot be used, because the text is the only stream of the model")
    if others and rows_of(table) != 1:
        message = f"the model also needs one sample of {', '.join(others)}, but `beside` has {rows_of(table)}"
        raise UserError(message, hint="Pass the columns of that sample: generate(run, beside={NAME: array}).")
    if not others:
        return run.model
    streams = {name: tokens.normalise(tokens.tokenize(table)) for name, tokens in others.items()}
    return Conditioned(run.model, stream, Batch(streams).inputs(run.device).streams)
