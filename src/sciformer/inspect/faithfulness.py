"""What the answers of a run rest on: the tokens they come from, and whether leaving these out matters.

The pictures of `sciformer inspect`, and a section of the report where they do not take long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..assembly import Assembly
from ..data.batch import Batch, Stream, stream_name
from ..errors import UserError, one_of
from ..models.base import parameters
from ..tokens.base import Tokens
from ..tokens.protocols import Gridded, Maskable, prefix_length
from .attention import (
    Panel,
    attention_maps,
    draw_samples,
    eval_mode,
    even_steps,
    excess_over,
    sample_name,
    weights_on,
)
from .attribution import attribute, has_single_answer, model_answers, prepare_inputs
from .plots import style
from .plots.style import FAINT_GREY, LINE_COLOURS, LINE_DASHES
from .rollout import rollout_samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..run import Run

    Picture = tuple[str, Callable[[], Figure], str]

Floats = NDArray[np.float64]
MAX_SAMPLES, MIN_SAMPLES = 48, 8  # of which tokens are left out, at most, and at least for it to mean something
MAX_OPERATIONS = 1e11  # that a report may take for it: some seconds of a core


def draw_reasons(assembly: Assembly, batch: Batch, ways: dict[str, Scores], row: int) -> Figure:
    """A sample, plain and with what every way to look at the model says of its tokens.

    Drawn is how much more than the mean of all tokens one has; nothing where none has a tenth more.
    """
    sample = batch.take(np.array([row]))
    panels: list[Panel] = [("sample", sample, None)]
    for way, scores in ways.items():
        weights = np.clip(np.nan_to_num(scores[row]), 0, None)
        excess, most = excess_over(weights / weights.mean() if weights.sum() > 0 else weights)
        words = f"up to {most:.1f} × mean" if excess.any() else "nearly the same for all"
        panels.append((f"{WAY_NAMES.get(way, way)}\n{words}", sample, excess))
    return draw_samples(assembly, panels)


def affordable_samples(run: Run, tokens: float) -> int:
    """Samples of so many tokens that a report has the time for; none where they would be too few to mean something."""
    passes = len(REMOVED_SHARES) * (len(WAY_NAMES) + 1 + RANDOM_DRAWS) + 4
    few = int(MAX_OPERATIONS / (2.0 * parameters(run.model) * max(1.0, tokens) * passes))
    return min(MAX_SAMPLES, few) if few >= MIN_SAMPLES else 0


def reason_figures(
    run: Run, data: Assembly, part: str, samples: int, most: int, stream: str, numbers: dict[str, Any]
) -> Iterator[Picture]:
    """(name, how to draw it, caption) of some samples, and of what leaving out tokens does; numbers are left in
    `numbers`."""
    dataset = data.dataset(part)
    shown = dataset.batch(even_steps(len(dataset), samples))
    if (lengths := shown.streams[stream].lengths).sum():
        ways, said = score_tokens(run.step, data, shown, stream), choose_answers(run.step, data, shown)
        for row in np.flatnonzero(lengths):
            name = sample_name(shown, int(row), run.recipe.objective)
            caption = f"{name}: what the answer {said[row]} comes from, by several ways to look at the model."
            yield f"reasons-{row + 1}", partial(draw_reasons, data, shown.only(stream), ways, int(row)), caption
    batch = dataset.batch(even_steps(len(dataset), most))
    possible = takes_any(data, data.tokens[stream], stream) or isinstance(data.tokens[stream], Maskable)
    if possible and int((batch.streams[stream].lengths > 1).sum()) >= min(2, most):
        found = faithfulness(run.step, data, batch, stream=stream)
        numbers["faithfulness"] = to_json(found)
        yield "faithfulness", partial(draw_faithfulness, found), summarize_ratios(found)


def to_json(found: Faithfulness) -> dict[str, Any]:
    """For scores.json."""
    return {
        "samples": len(next(iter(found.change.values()))),
        "removed": found.removed,
        "shares": found.shares,
        "change": {way: each.mean(0) for way, each in found.change.items()},
        "flipped": found.flipped,
        "ratio": {way: {"value": value, "error": error} for way, (value, error) in found.ratio.items()},
    }


def summarize_ratios(found: Faithfulness) -> str:
    """The ratios in words."""
    said = [f"{WAY_NAMES.get(way, way)} {value:.2f} ± {error:.2f}" for way, (value, error) in found.ratio.items()]
    count = len(next(iter(found.change.values())))
    verb = "left out" if found.removed else "blanked"
    return (
        f"How answers change when tokens are {verb}, in the mean of {count} samples. The area below each curve over "
        f"that of random tokens: {', '.join(said)}."
    )


# Does it matter what a model looks at? Tokens that attention points at are left out, and the answer is asked again


Flags = NDArray[np.bool_]
Scores = list[Floats]

REMOVED_SHARES = (0.1, 0.2, 0.35, 0.5)
RANDOM_DRAWS = 2  # of random tokens, of which the mean is taken
RANDOM_WAY, LEAST_ATTENDED_WAY = "random", "least attended"
WAY_COLOURS = (*LINE_COLOURS[:3], "#7a3b8f")
WAY_NAMES = {  # their names for people
    "attention": "attention",
    "rollout": "rollout",
    "attribution": "attention × gradient",
    "gradient": "gradient × input",
}


class Faithfulness(NamedTuple):
    """How much answers change when tokens are left out.

    shares   (S,) shares of the tokens of a sample that were left out
    change   (B, S) by how they were chosen: attention, rollout, attribution, gradient, random, least attended
    flipped  (S,) shares of samples whose likeliest class became another, likewise; empty for values
    ratio    the area below the mean change over that of random tokens, and its error over samples (jackknife)
    removed  whether the tokens were left out; otherwise they were blanked
    """

    shares: Floats
    change: dict[str, Floats]
    flipped: dict[str, Floats]
    ratio: dict[str, tuple[float, float]]
    removed: bool


def faithfulness(
    step: Any,
    assembly: Assembly,
    batch: Batch,
    shares: Sequence[float] = REMOVED_SHARES,
    how: str = "auto",
    draws: int = RANDOM_DRAWS,
    scores: Mapping[str, Scores] | None = None,
    stream: str = "",
) -> Faithfulness:
    """Leave out the tokens of samples that a way to look at the model scores highest, a share of them at a time.

    how     remove, blank, or auto: whichever the model can take
    scores  {way: (N,) for each sample} in place of the usual ways; with `attention` also the least attended are tried
    stream  of these tokens (default: the one that the objective asks about); the others stay whole

    The change of an answer is that of the log odds of the class that was likeliest, of any sign; of values the mean
    over them, in deviations of the training data. Samples of one token have nothing to choose from and are left out.
    """
    one_of("how to leave out tokens", how, ("auto", "remove", "blank"))
    stream = stream_name(assembly.tokens, stream or assembly.objective.stream)
    tokens, batch = assembly.tokens[stream], batch.take(np.flatnonzero(batch.streams[stream].lengths > 1))
    if not has_single_answer(step, assembly) or not len(batch) or not 0 < min(shares) <= max(shares) < 1:
        found = f"`objective.kind: {assembly.recipe.objective.kind}`, {len(batch)} samples, shares {list(shares)}"
        needed = "samples of two tokens or more with one answer each, and shares between 0 and 1"
        raise UserError(f"leaving out tokens needs {needed}, not {found}")
    removed = takes_any(assembly, tokens, stream) if how == "auto" else how == "remove"
    ways = dict(score_tokens(step, assembly, batch, stream) if scores is None else scores)
    if "attention" in ways:
        ways[LEAST_ATTENDED_WAY] = [-each for each in ways["attention"]]
    whole = batch.streams[stream]
    may, rng = removable_tokens(tokens, whole), np.random.default_rng(0)
    before, values = _answers(step, assembly, batch)
    change: dict[str, list[Floats]] = {way: [] for way in (*ways, RANDOM_WAY)}
    flipped: dict[str, list[float]] = {way: [] for way in change}
    best = before.argmax(1)[:, None]
    drawn = [[rng.random(n) for n in whole.lengths] for _ in range(draws)]
    for share in sorted(shares):
        for way, orders in [*((way, [each]) for way, each in ways.items()), (RANDOM_WAY, drawn)]:
            moved, flips = [], []
            for order in orders:
                less = remove_tokens(tokens, batch, choose_tokens(whole, order, may, share), removed, stream)
                after, _ = _answers(step, assembly, less)
                apart = np.abs(after - before)
                moved.append(apart.mean(1) if values else np.take_along_axis(apart, best, 1)[:, 0])
                flips.append(float((after.argmax(1) != best[:, 0]).mean()))
            change[way].append(np.mean(moved, 0))
            flipped[way].append(float(np.mean(flips)))
    made = {way: np.stack(columns, 1) for way, columns in change.items()}
    other = {} if values else {way: np.array(each) for way, each in flipped.items()}
    return Faithfulness(np.array(sorted(shares)), made, other, ratios(np.array(sorted(shares)), made), removed)


def score_tokens(step: Any, assembly: Assembly, batch: Batch, stream: str = "") -> dict[str, Scores]:
    """What every way to look at a model says of the tokens of samples.

    A model without attention has one way, and so have streams beside the one that the objective asks about.
    """
    found = attribute(step, assembly, batch, stream=stream)
    if stream and stream != assembly.objective.asked_stream(assembly.tokens):
        return {"gradient": found.gradient}
    look = attention_maps(step, assembly, batch, stream or assembly.objective.stream)
    ways = {"attribution": found.attention, "gradient": found.gradient} if found.attention else {}
    if look.watch.attention:
        last = [list(weights_on(look, row).values())[-1] for row in range(len(batch))]
        ways = {"attention": last, "rollout": rollout_samples(look), **ways}
    return ways or {"gradient": found.gradient}


def choose_answers(step: Any, assembly: Assembly, batch: Batch) -> list[str]:
    """The answer that is followed back for each sample: the likeliest class; of values, the name of the first."""
    found, values = _answers(step, assembly, batch)
    objective: Any = assembly.objective
    if values:
        return [str(objective.targets[0])] * len(batch)
    return [str(objective.classes[best]) for best in found.argmax(1)]


def takes_any(assembly: Assembly, tokens: Tokens, stream: str = "") -> bool:
    """Whether a model takes any tokens of a sample, or needs them all where they stand side by side."""
    model = assembly.recipe.model.for_stream(stream)
    if not isinstance(tokens.grid_shape, tuple):
        return bool(model.trunk != "conformer")
    return bool(model.trunk == "transformer" and not (isinstance(tokens, Gridded) and tokens.mixes_tokens))


def removable_tokens(tokens: Tokens, stream: Stream) -> Flags:
    """(T,) which tokens may be left out: those that say something, not the special ones; all where there are no such.

    Some tokens cannot be hidden, because others know of them; left out they can be all the same.
    """
    may = stream.position >= prefix_length(tokens)
    try:
        maskable = tokens.maskable(stream) if isinstance(tokens, Maskable) else None
    except UserError:
        maskable = None
    may = may if maskable is None else may & maskable
    return np.asarray(may | (np.bincount(stream.sample[may], minlength=len(stream)) < 2)[stream.sample])


def choose_tokens(stream: Stream, scores: Scores, may: Flags, share: float) -> Flags:
    """(T,) a share of the tokens of each sample that may be left out, those of the highest scores; one or more of them,
    and never all."""
    out = np.zeros(len(may), bool)
    for start, n, score in zip(stream.starts, stream.lengths, scores):
        own = np.flatnonzero(may[start : start + n])
        count = min(max(1, round(share * len(own))), len(own) - 1)
        out[start + own[np.argsort(-score[own], kind="stable")[:count]]] = True
    return out


def remove_tokens(tokens: Tokens, batch: Batch, out: Flags, removed: bool, name: str = "") -> Batch:
    """Samples without the tokens of a stream where the mask (T,) is True, or with nothing left of them."""
    stream = batch.streams[stream_name(batch.streams, name)]
    if removed:
        return batch.with_columns(stream.keep(~out), name)
    blank = Maskable.require(tokens, "leaving out tokens that a model needs where they stand").mask_out(stream, out)
    return batch.with_columns(stream.with_columns(**blank, hidden=out), name)


def ratios(shares: Floats, change: Mapping[str, Floats]) -> dict[str, tuple[float, float]]:
    """The area below the mean change of each way over that of random tokens, with its error over samples."""
    steps = np.concatenate([[0.0], shares])
    area = {
        way: (np.diff(steps) * (np.pad(each, ((0, 0), (1, 0)))[:, :-1] + each) / 2).sum(1)
        for way, each in change.items()
    }
    return {way: _ratio(each, area[RANDOM_WAY]) for way, each in area.items() if way != RANDOM_WAY}


def _ratio(top: Floats, bottom: Floats) -> tuple[float, float]:
    """sum of top / sum of bottom, and its error when any one of the samples is left out."""
    if not bottom.sum() > 0:
        return float("nan"), float("nan")
    n, rest = len(top), bottom.sum() - bottom
    if n < 2 or not (rest > 0).all():
        return float(top.sum() / bottom.sum()), float("nan")
    each = (top.sum() - top) / rest
    return float(top.sum() / bottom.sum()), float(np.sqrt((n - 1) / n * ((each - each.mean()) ** 2).sum()))


@torch.no_grad()
def _answers(step: Any, assembly: Assembly, batch: Batch) -> tuple[Floats, bool]:
    """(B, classes) log odds, or (B, values), and whether they are values."""
    with eval_mode(step):
        found, values = model_answers(step.model, prepare_inputs(step, assembly, batch))
    return np.asarray(found.double().cpu().numpy()), values


def draw_faithfulness(found: Faithfulness) -> Figure:
    """The mean change of answers against the share of tokens left out, by how these were chosen; bars are errors of the
    mean over samples."""
    figure, axes = style.new_axes()
    x = np.concatenate([[0.0], found.shares])
    for i, (way, each) in enumerate(found.change.items()):
        grey = way in (RANDOM_WAY, LEAST_ATTENDED_WAY)
        mean, error = each.mean(0), each.std(0) / max(1, len(each)) ** 0.5
        axes.errorbar(
            x,
            np.concatenate([[0.0], mean]),
            np.concatenate([[0.0], error]),
            color=FAINT_GREY if grey else WAY_COLOURS[i % len(WAY_COLOURS)],
            linestyle=LINE_DASHES[1 if way == RANDOM_WAY else 2] if grey else LINE_DASHES[i % len(LINE_DASHES)],
            linewidth=1.4,
            marker="o",
            markersize=3,
            capsize=2,
            label=WAY_NAMES.get(way, way),
        )
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 1.05 * x[-1])
    verb = "left out" if found.removed else "blanked"
    answer = "change of the log odds" if found.flipped else "change of the values, in deviations"
    style.finish(figure, axes, f"share of the tokens {verb}", answer, always=True)
    return figure
