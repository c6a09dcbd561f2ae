"""Figures of generated samples: contact sheets, and attention to the prompt.

    seen = watch_synthesis(run, "a small red disc left of a blue star", seed=0)
    draw_synthesis(seen).savefig("attention.png")

A model that writes tokens one after the other attends to the words at each token. A diffusion model attends with all
tokens at each step; the figure shows some steps, from noise to the finished sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ..data.batch import Batch, Stream
from ..data.columns import Array, Table, select
from ..errors import UserError
from ..models.encoder_decoder import SOURCE
from ..nn import Watch
from ..tokens.protocols import Invertible
from .attention import Picture, escape_mathtext, excess_over
from .plots.attention import FONT_SIZE

if TYPE_CHECKING:
    from ..generation.samples import Generated
    from ..run import Run

PANEL_INCHES = 1.3
SHEET_COLUMNS = 8  # samples of one prompt side by side
MAX_SHOWN_STEPS = 6
MAX_SHOWN_SAMPLES = 128  # on a contact sheet


class Synthesis(NamedTuple):
    """Steps of the generation of a sample, with the attention to the prompt.

    tokens   kind of the tokens of the sample
    words    words of the prompt
    steps    numbers of the S recorded steps, from 1
    streams  tokens of the sample after each of these steps, as predicted by the model
    maps     weights (S, N, W) of N new tokens to W words; NaN for tokens that were not read up to this step
    """

    tokens: Invertible
    words: list[str]
    steps: list[int]
    streams: list[Stream]
    maps: Array


def only_makes_samples(run: Run) -> bool:
    """Whether the run makes samples that are not text, from a prompt or without."""
    from ..generation.samples import makes_samples

    name = run.assembly.objective.asked_stream(run.assembly.tokens)
    return makes_samples(run) and isinstance(run.assembly.tokens[name], Invertible)


def has_prompts(run: Run) -> bool:
    """Whether the run makes samples from prompts."""
    return only_makes_samples(run) and SOURCE in run.assembly.tokens


def watch_synthesis(run: Run, prompt: str | Table | None, **options: Any) -> Synthesis:
    """Generate one sample and record its attention, as the mean over heads and blocks.

    prompt   text, or columns of the condition with one row
    options  further arguments of `generate_samples`
    """
    from ..generation.samples import Maker, Wishes, generate_samples

    maker = Maker(run, Wishes(options.get("guidance"), options.get("steps")))
    prompts: Any = prompt if isinstance(prompt, Mapping) else [prompt]
    source = maker.encode(prompts)
    words = [] if source is None or maker.source is None else maker.source.token_labels(source)
    if not words:
        raise UserError("there is no attention to words without a prompt", hint="Write a prompt.", key="--prompt")
    streams: list[Stream] = []
    rows: list[Array] = []

    def keep(first: int, number: int, stream: Stream, watch: Watch | None) -> None:
        assert watch is not None
        streams.append(stream.take(np.zeros(1, np.int64)))
        maps = [a[0].float().mean(0) for name, a in watch.attention.items() if name.endswith(".cross")]
        if not maps:
            raise UserError("this model has no attention to its prompt")
        rows.append(np.mean([one.cpu().numpy() for one in maps], 0)[:, : len(words)])

    generate_samples(run, prompts, on_step=keep, **options)
    if maker.diffuses:
        shown = sorted({round(step) for step in np.linspace(0, len(rows) - 1, min(MAX_SHOWN_STEPS, len(rows)))})
        maps = np.stack([rows[step] for step in shown])
    else:  # each step has read one token, and made the next one
        shown = sorted({round(step) for step in np.linspace(0, len(rows) - 1, min(MAX_SHOWN_STEPS, len(rows)) + 1)[1:]})
        every = np.concatenate(rows)
        maps = np.stack([np.where(np.arange(len(every))[:, None] <= step, every, np.nan) for step in shown])
    labels = [escape_mathtext(word) for word in words]
    return Synthesis(maker.tokens, labels, [step + 1 for step in shown], [streams[step] for step in shown], maps)


def draw_synthesis(found: Synthesis) -> Figure:
    """Draw a sample at some steps, with the attention of its tokens to each word.

    The colour shows the excess over uniform attention to all words. The title of a panel has the largest weight.
    """
    across, down = 1 + len(found.words), len(found.steps)
    figure = Figure(figsize=(PANEL_INCHES * across, (PANEL_INCHES + 0.25) * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes, step, stream, weights in zip(grid, found.steps, found.streams, found.maps):
        sample = _as_sample(found.tokens, stream)
        found.tokens.draw(sample, None, axes[0])
        axes[0].set_ylabel(f"step {step}", fontsize=FONT_SIZE)
        length = int(sample.stream.lengths[0])
        for panel, word, column in zip(axes[1:], found.words, weights.T):
            excess, most = excess_over(column[np.isfinite(column)].astype(np.float64) * len(found.words))
            shade = np.concatenate([np.zeros(max(0, length - len(excess))), excess])[:length]
            found.tokens.draw(sample, shade, panel)
            words = f"up to {most:.1f} × uniform" if excess.any() else "nearly uniform"
            panel.set_title(f"{word}\n{words}" if step == found.steps[0] else words, fontsize=FONT_SIZE)
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[], xlabel="")
    return figure


def draw_some(run: Run, prompts: Sequence[Table]) -> Iterator[Picture]:
    """Yield name, drawing function and caption of a sample for each prompt."""
    for number, prompt in enumerate(prompts, 1):
        found = watch_synthesis(run, prompt, seed=0)
        caption = f"A sample generated from «{' '.join(found.words)}», and the attention of its tokens to each word "
        caption += "while it was made, mean over heads. Colour: excess over uniform attention."
        yield f"generated-{number}", partial(draw_synthesis, found), caption


def draw_plain(run: Run, samples: int) -> Iterator[Picture]:
    """Yield name, drawing function and caption of samples without a prompt.

    samples   number of samples
    """
    from ..generation.samples import Maker, Wishes, generate_samples

    found, tokens = generate_samples(run, [None], samples, seed=0), Maker(run, Wishes()).tokens
    yield "generated", partial(draw_contact_sheet, tokens, found, [""]), "Generated samples."


def draw_contact_sheet(
    tokens: Invertible, found: Generated, prompts: Sequence[str | None] | Mapping[str, Any]
) -> Figure:
    """Draw all samples in rows, with their prompts as titles."""
    titles = [text or "" for text in prompts] if not isinstance(prompts, Mapping) else [""] * found.prompts
    count = min(found.prompts * found.number, MAX_SHOWN_SAMPLES)
    lone = found.number == 1
    across = min(SHEET_COLUMNS, count if lone else found.number)
    places = [(row // found.number, row % found.number) for row in range(count)]
    down = -(-count // across) if lone else sum(-(-found.number // across) for _ in range(places[-1][0] + 1))
    figure = Figure(figsize=(PANEL_INCHES * across, (PANEL_INCHES + 0.2) * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    for row, (prompt, number) in enumerate(places):
        place = (
            divmod(row, across) if lone else (prompt * -(-found.number // across) + number // across, number % across)
        )
        axes = grid[place]
        axes.set_axis_on()
        tokens.draw(
            Batch({"tokens": tokens.tokenize(select(found.table, np.array([row])))}, {}, np.arange(1)), None, axes
        )
        if number == 0:
            axes.set_title(escape_mathtext(titles[prompt]), fontsize=FONT_SIZE, loc="left", wrap=lone)
    return figure


def _as_sample(tokens: Invertible, stream: Stream) -> Batch:
    """Sample of generated tokens in the units of the data, for `draw`."""
    if tokens.new_tokens:
        return Batch({"tokens": stream}, {}, np.arange(1))
    return Batch({"tokens": tokens.tokenize(tokens.invert(stream))}, {}, np.arange(1))
