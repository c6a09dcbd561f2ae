"""Faithfulness of attributions: predictions without the highest-scored tokens."""

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
from ..data.random import Floats
from ..errors import UserError, one_of
from ..models.base import parameters
from ..tokens.base import Tokens
from ..tokens.protocols import Gridded, Maskable, prefix_length
from .attention import Picture, attention_maps, draw_excess, eval_mode, sample_ids, sample_name, weights_on
from .attribution import attribute, has_single_answer, model_answers, prepare_inputs
from .plots import style
from .plots.style import FAINT_GREY, LINE_COLOURS, LINE_DASHES
from .rollout import rollout_samples

if TYPE_CHECKING:
    from ..run import Run

MAX_SAMPLES, MIN_SAMPLES = 48, 8  # samples for a faithfulness test
MAX_OPERATIONS = 1e11  # FLOPs for the test in a report: some seconds on one core


def draw_reasons(assembly: Assembly, batch: Batch, ways: dict[str, Scores], row: int) -> Figure:
    """Draw a sample plain, then once for each method, coloured by its scores.

    The colour shows the excess over the mean score; it is left out if the largest excess is below 10 %.
    """
    weights = {WAY_NAMES.get(way, way): np.clip(np.nan_to_num(scores[row]), 0, None) for way, scores in ways.items()}
    times = {name: each / each.mean() if each.sum() > 0 else each for name, each in weights.items()}
    return draw_excess(assembly, batch.take(np.array([row])), times, "mean")


def affordable_samples(run: Run, tokens: float) -> int:
    """Number of samples within the time limit of a report; 0 if too few."""
    passes = len(REMOVED_SHARES) * (len(WAY_NAMES) + 1 + RANDOM_DRAWS) + 4
    few = int(MAX_OPERATIONS / (2.0 * parameters(run.model) * max(1.0, tokens) * passes))
    return min(MAX_SAMPLES, few) if few >= MIN_SAMPLES else 0


def reason_figures(
    run: Run, data: Assembly, part: str, samples: int, most: int, stream: str, numbers: dict[str, Any]
) -> Iterator[Picture]:
    """Yield (name, drawing function, caption) of attributions and faithfulness.

    numbers   receives the results for scores.json
    """
    dataset = data.dataset(part)
    shown = dataset.batch(sample_ids(len(dataset), samples))
    if (lengths := shown.streams[stream].lengths).sum():
        ways, said = score_tokens(run.step, data, shown, stream), choose_answers(run.step, data, shown)
        for row in np.flatnonzero(lengths):
            name = sample_name(shown, int(row), run.recipe.objective)
            caption = f"Attribution of the prediction «{said[row]}» to tokens ({name}), by several methods."
            yield f"reasons-{row + 1}", partial(draw_reasons, data, shown.only(stream), ways, int(row)), caption
    batch = dataset.batch(sample_ids(len(dataset), most))
    possible = takes_any(data, data.tokens[stream], stream) or isinstance(data.tokens[stream], Maskable)
    if possible and int((batch.streams[stream].lengths > 1).sum()) >= min(2, most):
        found = faithfulness(run.step, data, batch, stream=stream)
        numbers["faithfulness"] = to_json(found)
        yield "faithfulness", partial(draw_faithfulness, found), summarize_ratios(found, dataset.unit)


def to_json(found: Faithfulness) -> dict[str, Any]:
    """Faithfulness results as entries of scores.json."""
    return {
        "samples": len(next(iter(found.change.values()))),
        "removed": found.removed,
        "shares": found.shares,
        "change": {way: each.mean(0) for way, each in found.change.items()},
        "flipped": found.flipped,
        "ratio": {way: {"value": value, "error": error} for way, (value, error) in found.ratio.items()},
    }


def summarize_ratios(found: Faithfulness, unit: str = "samples") -> str:
    """Caption with the faithfulness ratio of each method.

    unit   samples or windows
    """
    said = [f"{WAY_NAMES.get(way, way)} {value:.2f} ± {error:.2f}" for way, (value, error) in found.ratio.items()]
    count = len(next(iter(found.change.values())))
    how = f"{'removed' if found.removed else 'blanked'} ({count} {unit})"
    area = f"Area below each curve, divided by the area for random tokens: {', '.join(said)}."
    return f"Mean change of predictions when tokens are {how}. {area}"


# Faithfulness: remove the tokens with the highest scores and predict again


Flags = NDArray[np.bool_]
Scores = list[Floats]

REMOVED_SHARES = (0.1, 0.2, 0.35, 0.5)
RANDOM_DRAWS = 2  # random choices of tokens to average over
RANDOM_WAY, LEAST_ATTENDED_WAY = "random", "least attended"
WAY_COLOURS = (*LINE_COLOURS[:3], "#7a3b8f")
WAY_NAMES = {  # labels in figures
    "attention": "attention",
    "rollout": "rollout",
    "attribution": "attention × gradient",
    "gradient": "gradient × input",
}


class Faithfulness(NamedTuple):
    """Change of predictions when tokens are removed.

    shares   (S,) removed shares of the tokens of a sample
    change   (B, S) by method: attention, rollout, attribution, gradient, random, least attended
    flipped  (S,) by method: share of samples whose most likely class changed; empty for regression
    ratio    area below the mean change, divided by the area for random tokens, and its jackknife error over samples
    removed  whether tokens were removed; otherwise they were blanked
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
    """Test attribution methods: remove growing shares of the highest-scored tokens.

    how     remove, blank, or auto: remove if the model accepts any subset of tokens, otherwise blank
    scores  {method: (N,) for each sample} (default: the usual methods); `attention` also tests least attended tokens
    stream  stream of the tokens (default: the stream of the objective); other streams stay complete

    The change of a class is the absolute change of the log odds of the class that was most likely. The change of values
    is their mean absolute change, in standard deviations of the training data. Samples of one token are left out.
    """
    one_of("how to remove tokens", how, ("auto", "remove", "blank"))
    stream = stream_name(assembly.tokens, stream or assembly.objective.stream)
    tokens, batch = assembly.tokens[stream], batch.take(np.flatnonzero(batch.streams[stream].lengths > 1))
    if not has_single_answer(step, assembly):
        message = f"the faithfulness test cannot be used with `objective.kind: {assembly.recipe.objective.kind}`"
        raise UserError(message, hint="It needs an objective that predicts classes or values of samples.")
    if not len(batch):
        raise UserError("the faithfulness test needs samples of at least two tokens")
    if not 0 < min(shares) <= max(shares) < 1:
        raise UserError(f"the shares of a faithfulness test must be between 0 and 1, not {list(shares)}")
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
    """Scores of the tokens of samples, by each attribution method.

    Only the gradient is known for models without attention, and for streams besides the stream of the objective.
    """
    found = attribute(step, assembly, batch, stream=stream)
    joins = assembly.recipe.model.joins_streams and len(assembly.tokens) > 1
    if joins or (stream and stream != assembly.objective.asked_stream(assembly.tokens)):
        return {"gradient": found.gradient}
    recorded = attention_maps(step, assembly, batch, stream or assembly.objective.stream)
    ways = {"attribution": found.attention, "gradient": found.gradient} if found.attention else {}
    if recorded.watch.attention:
        last = [list(weights_on(recorded, row).values())[-1] for row in range(len(batch))]
        ways = {"attention": last, "rollout": rollout_samples(recorded), **ways}
    return ways or {"gradient": found.gradient}


def choose_answers(step: Any, assembly: Assembly, batch: Batch) -> list[str]:
    """Explained prediction of each sample: the most likely class, or the first target."""
    found, values = _answers(step, assembly, batch)
    objective: Any = assembly.objective
    if values:
        return [str(objective.targets[0])] * len(batch)
    return [str(objective.classes[best]) for best in found.argmax(1)]


def takes_any(assembly: Assembly, tokens: Tokens, stream: str = "") -> bool:
    """Whether the model accepts any subset of a sample's tokens."""
    model = assembly.recipe.model.for_stream(stream)
    if not isinstance(tokens.grid_shape, tuple):
        return bool(model.trunk != "conformer")
    return bool(model.trunk == "transformer" and not (isinstance(tokens, Gridded) and tokens.mixes_tokens))


def removable_tokens(tokens: Tokens, stream: Stream) -> Flags:
    """Mask (T,) of removable tokens: all tokens except special tokens.

    A token that cannot be masked, because its neighbours leak its content, can still be removed. In samples with fewer
    than two removable tokens, all tokens may be removed.
    """
    may = stream.position >= prefix_length(tokens)
    try:
        maskable = tokens.maskable(stream) if isinstance(tokens, Maskable) else None
    except UserError:
        maskable = None
    may = may if maskable is None else may & maskable
    return np.asarray(may | (np.bincount(stream.sample[may], minlength=len(stream)) < 2)[stream.sample])


def choose_tokens(stream: Stream, scores: Scores, may: Flags, share: float) -> Flags:
    """Mask (T,) of the tokens with the highest scores: a `share` of each sample.

    In each sample at least one token is chosen, but never all tokens.
    """
    out = np.zeros(len(may), bool)
    for start, n, score in zip(stream.starts, stream.lengths, scores):
        own = np.flatnonzero(may[start : start + n])
        count = min(max(1, round(share * len(own))), len(own) - 1)
        out[start + own[np.argsort(-score[own], kind="stable")[:count]]] = True
    return out


def remove_tokens(tokens: Tokens, batch: Batch, out: Flags, removed: bool, name: str = "") -> Batch:
    """Remove, or blank, the tokens of a stream where the mask (T,) is True."""
    stream = batch.streams[stream_name(batch.streams, name)]
    if removed:
        return batch.with_columns(stream.keep(~out), name)
    blank = Maskable.require(tokens, "blanking tokens").mask_out(stream, out)
    return batch.with_columns(stream.with_columns(**blank, hidden=out), name)


def ratios(shares: Floats, change: Mapping[str, Floats]) -> dict[str, tuple[float, float]]:
    """Area below the mean change, relative to random tokens: ratio and its error."""
    x = np.append(0.0, shares)
    area = {way: np.trapezoid(np.pad(each, ((0, 0), (1, 0))), x) for way, each in change.items()}
    return {way: _ratio(each, area[RANDOM_WAY]) for way, each in area.items() if way != RANDOM_WAY}


def _ratio(top: Floats, bottom: Floats) -> tuple[float, float]:
    """Ratio sum(top) / sum(bottom), and its jackknife error over samples."""
    if not bottom.sum() > 0:
        return float("nan"), float("nan")
    n, rest = len(top), bottom.sum() - bottom
    if n < 2 or not (rest > 0).all():
        return float(top.sum() / bottom.sum()), float("nan")
    each = (top.sum() - top) / rest
    return float(top.sum() / bottom.sum()), float(np.sqrt((n - 1) / n * ((each - each.mean()) ** 2).sum()))


@torch.no_grad()
def _answers(step: Any, assembly: Assembly, batch: Batch) -> tuple[Floats, bool]:
    """Predictions of samples, and True for regression (False for classes).

    Regression: values (B, values). Classes: log odds (B, classes).
    """
    with eval_mode(step):
        found, values = model_answers(step.model, prepare_inputs(step, assembly, batch))
    return np.asarray(found.double().cpu().numpy()), values


def draw_faithfulness(found: Faithfulness) -> Figure:
    """Plot the mean change against the removed share, with standard errors."""
    figure, axes = style.new_axes()
    x = np.append(0.0, found.shares)
    for i, (way, each) in enumerate(found.change.items()):
        grey = way in (RANDOM_WAY, LEAST_ATTENDED_WAY)
        mean, error = (np.append(0.0, part) for part in (each.mean(0), each.std(0) / max(1, len(each)) ** 0.5))
        colour = FAINT_GREY if grey else WAY_COLOURS[i % len(WAY_COLOURS)]
        dashes = LINE_DASHES[1 if way == RANDOM_WAY else 2] if grey else LINE_DASHES[i % len(LINE_DASHES)]
        options: dict[str, Any] = {
            "color": colour,
            "linestyle": dashes,
            "linewidth": 1.4,
            "marker": "o",
            "markersize": 3,
        }
        axes.errorbar(x, mean, error, **options, capsize=2, label=WAY_NAMES.get(way, way))
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 1.05 * x[-1])
    verb = "removed" if found.removed else "blanked"
    answer = "change of the log odds" if found.flipped else "change of the values, in standard deviations"
    style.finish(figure, axes, f"share of tokens {verb}", answer, always=True)
    return figure
