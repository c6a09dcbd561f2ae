"""Figures of attention and attribution, for `sciformer inspect` and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...assembly import Assembly, log_nothing
from ...data.batch import Batch
from ...data.columns import Table, rows_of, select
from ...data.source import pieces
from ...errors import UserError
from ...models.encoder_decoder import SOURCE
from ...tokens.protocols import Textual
from .. import alignment, attention, distance, faithfulness, masked, positions, streams, synthesis
from ..attention import Picture, even_steps, sample_ids, sample_name
from ..attribution import has_single_answer
from ..plots import heads
from ..plots.style import ignore_missing_glyphs, two_decimals
from .page import Page, save_figure

if TYPE_CHECKING:
    from ...run import Run
    from .report import ReportData

Log = Callable[[str], None]

MAX_HELD_WEIGHTS = 1 << 25  # attention weights of a block in memory at once
MAX_MATRIX_TOKENS = 80  # longest sample with drawn attention matrices


def inspect_run(run: Run, out: str | Path, samples: int = 3, part: str = "", log: Log = log_nothing) -> list[Path]:
    """Write figures of attention and attribution as PNG files into the folder `out`.

    part   part of the data (default: test, else valid)

    Some samples are drawn with the attention received by their tokens, as a mean over heads and for every head. The
    attention matrices of the first sample are drawn if the sample is short. Further figures show the attention distance
    and the similarity of positional encodings; for classes and values also attributions, and the change of predictions
    without the attributed tokens. With several streams, each stream has its own figures, and file names start with the
    stream.
    """
    if samples < 1:
        raise UserError(f"the number of samples must be at least 1, not {samples}", key="--samples")
    data, written = run.data(), []
    Path(out).mkdir(parents=True, exist_ok=True)
    with ignore_missing_glyphs():
        part = part or choose_part(data, run.recipe.objective.plot_against)
        seen = _attention_figures(run, data, part, samples, {}, log)
        for name, figure, _ in chain(seen, _reason_figures(run, data, part, samples, {})):
            written.append(Path(out) / f"{name}.png")
            save_figure(figure(), written[-1])
    return written


def _attention_figures(
    run: Run, data: Assembly, part: str, samples: int, numbers: dict[str, Any], log: Log
) -> Iterator[Picture]:
    """Yield (name, drawing function, caption) of attention figures.

    numbers   receives distances and similarities of positions for scores.json
    """
    writes = hasattr(data.objective, "penalty")
    if synthesis.has_prompts(run):
        yield from synthesis.draw_some(run, _some_prompts(data, part, samples))  # attention to the prompt
        return
    if synthesis.only_makes_samples(run):
        yield from synthesis.draw_plain(run, samples)
        return
    if writes:
        yield from alignment.draw_some(run, _some_sources(data, part, samples))  # attention to the source
    if not writes or getattr(run.model, "separate", False):
        yield from _by_stream(data, numbers, partial(_stream_figures, run, data, part, samples, log))
        yield from _share_figures(run, data, part, numbers)


def _by_stream(
    data: Assembly, numbers: dict[str, Any], make: Callable[[str, dict[str, Any]], Iterator[Picture]]
) -> Iterator[Picture]:
    """Figures of every stream; if there are several, names start with the stream."""
    for stream in data.tokens:
        if len(data.tokens) == 1:
            yield from make(stream, numbers)
            continue
        own = numbers.setdefault("streams", {}).setdefault(stream, {})
        yield from ((f"{stream}-{name}", draw, f"{stream}: {caption}") for name, draw, caption in make(stream, own))


def _longest(run: Run, batch: Batch) -> int:
    """Largest number of tokens in an input sequence of the trunk."""
    if run.recipe.model.joins_streams:
        return sum(int(stream.lengths.max(initial=0)) for stream in batch.streams.values())
    return batch.widest()


def _share_figures(run: Run, data: Assembly, part: str, numbers: dict[str, Any]) -> Iterator[Picture]:
    """Figure of the attention to each stream, for one trunk of several streams."""
    if not run.recipe.model.joins_streams or len(data.tokens) == 1:
        return
    dataset = data.dataset(part)
    some = dataset.batch(sample_ids(len(dataset), min(64, len(dataset))))
    few = MAX_HELD_WEIGHTS // (2 * max(1, _longest(run, some)) ** 2 * getattr(run.recipe.model, "heads", 1))
    if few and (found := streams.attention_shares(run.step, data, some.take(np.arange(min(few, len(some)))))).shares:
        numbers["attention_shares"] = found._asdict()
        words = "Share of the attention that the tokens of each stream get; dashed: share of the tokens."
        yield "shares", partial(streams.draw_shares, found), words


def _stream_figures(
    run: Run, data: Assembly, part: str, samples: int, log: Log, stream: str, numbers: dict[str, Any]
) -> Iterator[Picture]:
    dataset, column = data.dataset(part), run.recipe.objective.plot_against
    unit, model = data.tokens[stream].distance_unit, run.recipe.model.for_stream(stream)
    batch = dataset.batch(sample_ids(len(dataset), samples))
    asked = stream in data.objective.predicted_streams(data.tokens)
    if asked and (seen := masked.draw_masked(run.step, data, batch, stream)) is not None:
        caption = "Masked values and predictions, with one standard deviation if the model predicts it."
        yield "hidden", lambda: seen, caption
    longest = _longest(run, batch)
    width = max(1, longest) ** 2 * getattr(model, "heads", 1)
    if width * len(batch) > MAX_HELD_WEIGHTS:
        log(f"Attention is not shown: samples of {longest:,} tokens are too long.")
        return
    recorded = attention.attention_maps(run.step, data, batch, stream)
    for row in range(len(batch)):
        name = sample_name(batch, row, run.recipe.objective)
        caption = f"Attention received by each token ({name}). Colour: excess over uniform attention."
        yield f"sample-{row + 1}", partial(attention.draw_attention, recorded, data, row), caption
        sample, length = recorded.seen.take(np.array([row])), recorded.seen.stream.lengths[row]
        for form in data.tokens[stream].alternative_drawings(sample) if length else ():
            draw = partial(attention.draw_attention, recorded, data, row, form)
            yield f"{form}-{row + 1}", draw, f"The same sample, {form}."
        if recorded.watch.attention and length and heads.has_shape(data, recorded, row):
            draw = partial(heads.draw_every_head, recorded, data, row)
            yield f"heads-{row + 1}", draw, "Attention of every head of every block."
    if (codes := positions.position_similarity(run.step, data, batch, stream)) is not None:
        near, others = codes.neighbours
        numbers["positions"] = {"places": len(codes.values), "correlation": codes.correlation}
        numbers["positions"] |= {"neighbours": near, "others": others}
        draw = partial(positions.draw_positions, codes, unit)
        caption = "Cosine similarity of positional encodings; right: mean and central 68 % against distance."
        yield "positions", draw, caption
    short = 0 < recorded.seen.stream.lengths[0] <= MAX_MATRIX_TOKENS
    for other in recorded.between if short else ():
        assert recorded.others is not None
        if 0 < recorded.others.streams[other].lengths[0] <= MAX_MATRIX_TOKENS:
            draw = partial(attention.draw_matrices, recorded, data, 0, other)
            yield f"heads-to-{other}", draw, f"Attention to {other} in the first sample."
    if not recorded.watch.attention:
        mixed = "There are no attention maps: this trunk attends to projections of tokens."
        log("This trunk has no attention." if getattr(model, "compress", None) is None else mixed)
        return
    if attention.self_attention(recorded) and short:
        yield "heads", partial(attention.draw_matrices, recorded, data, 0), "Attention matrices of the first sample."
    few = max(1, min(64, MAX_HELD_WEIGHTS // (2 * width)))
    recorded = attention.attention_maps(run.step, data, dataset.batch(sample_ids(len(dataset), few)), stream)
    distances = distance.attention_distances(recorded, data)
    if not distances:
        return
    deeper = distance.depth(distances)
    numbers["reach"] = {name: {"heads": r.heads.mean(0), "uniform": r.uniform.mean()} for name, r in distances.items()}
    numbers["depth"] = {"correlation": deeper.correlation}
    words = f"Mean attention distance of each head over {min(few, len(dataset))} {dataset.unit} (bars: central 68 %)"
    words += f"; correlation with depth {two_decimals(deeper.correlation)}." if np.isfinite(deeper.correlation) else "."
    yield "reach", partial(distance.draw_reach, distances, unit), words
    if column not in batch.samples or batch.samples[column].dtype.kind not in "iuf":
        return
    held_out = [data.dataset(name) for name in data.parts() if name != "train"] or [dataset]
    along = distance.attention_distance_along(run.step, data, held_out, column, min(16, few), stream)
    if along is not None:
        numbers["reach_along"] = along._asdict()
        caption = f"Mean attention distance against {column}; bands show the standard deviation over samples."
        yield "reach-along", partial(distance.draw_reach_along, along, column, unit), caption


def _reason_figures(
    run: Run, data: Assembly, part: str, samples: int, numbers: dict[str, Any], quick: bool = False
) -> Iterator[Picture]:
    """Yield (name, drawing function, caption) of attribution figures.

    The number of samples is limited by the memory and, if `quick`, by the time for a report.
    """
    if not has_single_answer(run.step, data):
        return
    dataset = data.dataset(part)
    some = dataset.batch(sample_ids(len(dataset), samples))
    width = max(1, _longest(run, some)) ** 2 * getattr(run.recipe.model, "heads", 1)
    mean = some.tokens / max(1, len(some))
    wanted = faithfulness.affordable_samples(run, mean) if quick else faithfulness.MAX_SAMPLES
    most = min(MAX_HELD_WEIGHTS // width, wanted)
    if most >= samples:
        yield from _by_stream(data, numbers, partial(faithfulness.reason_figures, run, data, part, samples, most))


def attention_section(page: Page, found: ReportData) -> None:
    """Write the sections on attention and on the prediction of masked tokens."""
    page.section("Attention")
    if found.data is None:
        page.text("Not shown: attention needs the data and the model.")
        return
    part = choose_part(found.data, found.objective.plot_against)
    hidden = []
    try:
        for name, figure, caption in _attention_figures(found.run, found.data, part, 3, found.numbers, page.text):
            words = name.split("-")
            if "hidden" in words:
                hidden.append((figure, caption))
            elif "to" in words or "heads" not in words:
                page.figure(figure(), caption, caption)
    except UserError as error:  # a translation without attention
        page.text(f"Not shown: {error}")
    makes, writes = synthesis.only_makes_samples(found.run), hasattr(found.objective, "penalty")
    if makes:
        page.text("For other samples: sciformer generate RUN --prompt PROMPT --out FOLDER --attention PICTURE")
    elif writes:
        page.text("For other samples: sciformer translate RUN FILE --alignment PICTURE")
    if not makes and (not writes or getattr(found.run.model, "separate", False)):
        page.text("For every head and more samples: sciformer inspect RUN")
    if hidden:
        page.section("Masked tokens", note=f"Part: {part}")
    for figure, caption in hidden:
        page.figure(figure(), caption, caption)


def reasons_section(page: Page, found: ReportData) -> None:
    """Write the section on attribution, for models of classes or values."""
    if found.data is None or not has_single_answer(found.run.step, found.data):
        return
    page.section("Attribution")
    part = choose_part(found.data, found.objective.plot_against)
    made = list(_reason_figures(found.run, found.data, part, 1, found.numbers, quick=True))
    for _, figure, caption in made:
        page.figure(figure(), caption, caption.partition(". ")[0])
    if not made:
        page.text("Not shown: attribution takes too long for a report. Run: sciformer inspect RUN")


def _some_sources(data: Assembly, part: str, count: int) -> Sequence[str | Table]:
    """Samples for alignment: short lines of text, or tables with one row."""
    from ...generation.translate import columns_of, source_tokens

    source = data.dataset(part).source
    if not isinstance(source_tokens(data), Textual):
        piece = source.load(0)
        return [select(piece, np.array([row])) for row in sample_ids(rows_of(piece), count)]
    name, _ = columns_of(data)
    texts = (str(text) for table in pieces(source) for text in np.asarray(table[name]))
    found = [text for text in texts if 8 < len(text) < 120]
    return [found[i] for i in even_steps(len(found), count)] if found else []


def _some_prompts(data: Assembly, part: str, count: int) -> list[Table]:
    """Columns of the condition of some samples, as tables with one row."""
    piece = data.dataset(part).source.load(0)
    names = data.tokens[SOURCE].required_columns
    return [select({name: piece[name] for name in names}, np.array([row])) for row in sample_ids(rows_of(piece), count)]


def choose_part(data: Assembly, column: str = "") -> str:
    """Part to show: test, valid, another part, or train.

    column   prefer the part with the most different values of this column
    """
    parts = sorted(data.parts(), key=lambda part: (part == "train", part != "test", part != "valid"))

    def values(part: str) -> int:
        known = column in data.dataset(part).batch(np.arange(1)).samples
        return len(np.unique(data.dataset(part).sample_column(column))) if known and part != "train" else 0

    return max(parts, key=values) if column else parts[0]
