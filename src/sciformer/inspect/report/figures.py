"""Pictures of what a model looks at, for `sciformer inspect` and for the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from ...assembly import Assembly, log_nothing
from ...data.source import pieces
from ...errors import UserError
from .. import alignment, attention, distance, faithfulness, masked, positions
from ..attention import even_steps, sample_name
from ..attribution import has_single_answer
from ..plots import heads
from ..plots.style import ignore_missing_glyphs, two_decimals
from .page import Page, save_figure

if TYPE_CHECKING:
    from ...run import Run
    from .report import ReportData

Log = Callable[[str], None]
Picture = tuple[str, Callable[[], Figure], str]

MAX_HELD_WEIGHTS = 1 << 25  # attention weights of a block that are held at once
MAX_MATRIX_TOKENS = 80  # tokens of a sample up to which matrices of attention are drawn


def inspect_run(run: Run, out: str | Path, samples: int = 3, part: str = "", log: Log = log_nothing) -> list[Path]:
    """Pictures of what a model attends to, as PNG files in the folder `out`.

    For each of some samples of a part (test, or valid, unless given) its drawing beside the attention its tokens
    receive, and once more for every head of every block; for the first one the weights head by head as matrices, if it
    is short; the reach of the heads; how alike position codes are. Where samples have one answer: what that comes from,
    and how it changes without those tokens. All that for each stream of tokens; names of files then begin with its
    name.
    """
    if samples < 1:
        raise UserError(f"the number of samples must be 1 or more, not {samples}", key="--samples")
    data, written = run.data(), []
    Path(out).mkdir(parents=True, exist_ok=True)
    with ignore_missing_glyphs():
        part = part or choose_part(data, run.recipe.objective.plot_against)
        made = chain(
            _attention_figures(run, data, part, samples, {}, log), _reason_figures(run, data, part, samples, {})
        )
        for name, figure, _ in made:
            written.append(Path(out) / f"{name}.png")
            save_figure(figure(), written[-1])
    return written


def _attention_figures(
    run: Run, data: Assembly, part: str, samples: int, numbers: dict[str, Any], log: Log
) -> Iterator[Picture]:
    """(name, how to draw it, caption) of what is attended to in samples; reach and positions are left in `numbers`."""
    if hasattr(data.objective, "penalty"):  # what is written looks at what it is written from
        for name, drawn, caption in alignment.draw_some(run, _short_sources(data, part, samples)):
            yield name, partial(_return_figure, drawn), caption
        return
    yield from _by_stream(data, numbers, partial(_stream_figures, run, data, part, samples, log))


def _by_stream(
    data: Assembly, numbers: dict[str, Any], make: Callable[[str, dict[str, Any]], Iterator[Picture]]
) -> Iterator[Picture]:
    """Pictures of every stream; where there are several, they and their numbers have its name."""
    for stream in data.tokens:
        if len(data.tokens) == 1:
            yield from make(stream, numbers)
            continue
        own = numbers.setdefault("streams", {}).setdefault(stream, {})
        yield from ((f"{stream}-{name}", draw, f"{stream}: {caption}") for name, draw, caption in make(stream, own))


def _stream_figures(
    run: Run, data: Assembly, part: str, samples: int, log: Log, stream: str, numbers: dict[str, Any]
) -> Iterator[Picture]:
    dataset, column = data.dataset(part), run.recipe.objective.plot_against
    unit, model = data.tokens[stream].distance_unit, run.recipe.model.for_stream(stream)
    batch = dataset.batch(even_steps(len(dataset), samples))
    asked = stream == data.objective.asked_stream(data.tokens)
    if asked and (seen := masked.draw_masked(run.step, data, batch)) is not None:
        caption = "Hidden values and predictions, with one standard deviation where it has one."
        yield "hidden", partial(_return_figure, seen), caption
    longest = batch.widest()
    width = max(1, longest) ** 2 * getattr(model, "heads", 1)
    if width * len(batch) > MAX_HELD_WEIGHTS:
        log(f"Samples of {longest:,} tokens are too long to show who looks at whom.")
        return
    look = attention.attention_maps(run.step, data, batch, stream)
    for row in range(len(batch)):
        caption = f"{sample_name(batch, row, run.recipe.objective)}, and the attention of its tokens."
        yield f"sample-{row + 1}", partial(attention.draw_attention, look, data, row), caption
        for form in heads.alternative_forms(data, look, row):
            yield f"{form}-{row + 1}", partial(attention.draw_attention, look, data, row, form), f"The same, {form}."
        if look.watch.attention and look.seen.stream.lengths[row] and heads.has_shape(data, look, row):
            yield f"heads-{row + 1}", partial(heads.draw_every_head, look, data, row), "Every head of every block."
    if (codes := positions.position_similarity(run.step, data, batch, stream)) is not None:
        near, others = codes.neighbours
        numbers["positions"] = {"places": len(codes.values), "correlation": codes.correlation}
        numbers["positions"] |= {"neighbours": near, "others": others}
        draw = partial(positions.draw_positions, codes, unit)
        yield "positions", draw, "How alike the codes of two positions are."
    short = 0 < look.seen.stream.lengths[0] <= MAX_MATRIX_TOKENS
    for other in look.between if short else ():
        assert look.others is not None
        if 0 < look.others.streams[other].lengths[0] <= MAX_MATRIX_TOKENS:
            draw = partial(attention.draw_matrices, look, data, 0, other)
            yield f"heads-to-{other}", draw, f"How it looks at {other} in the first sample."
    if not look.watch.attention:
        mixed = getattr(model, "compress", None) is not None
        log("This trunk looks at mixtures of tokens." if mixed else "This trunk has no attention.")
        return
    if attention.self_attention(look) and short:
        yield "heads", partial(attention.draw_matrices, look, data, 0), "Who looks at whom in the first sample."
    few = max(1, min(64, MAX_HELD_WEIGHTS // (2 * width)))
    distances = distance.attention_distances(
        attention.attention_maps(run.step, data, dataset.batch(even_steps(len(dataset), few)), stream), data
    )
    if not distances:
        return
    deeper = distance.depth(distances)
    numbers["reach"] = {name: {"heads": r.heads.mean(0), "uniform": r.uniform.mean()} for name, r in distances.items()}
    numbers["depth"] = {"correlation": deeper.correlation}
    words = f"How far each head looks, over {min(few, len(dataset))} samples"
    words += f"; correlation with depth {two_decimals(deeper.correlation)}." if np.isfinite(deeper.correlation) else "."
    yield "reach", partial(distance.draw_reach, distances, unit), words
    numeric = column in batch.samples and batch.samples[column].dtype.kind in "iuf"
    judged = [data.dataset(name) for name in data.parts() if name != "train"] or [dataset]
    if not numeric:
        return
    along = distance.attention_distance_along(run.step, data, judged, column, min(16, few), stream)
    if along is not None:
        numbers["reach_along"] = along._asdict()
        caption = f"How far attention reaches against {column}, and its deviation from sample to sample."
        yield "reach-along", partial(distance.draw_reach_along, along, column, unit), caption


def _reason_figures(
    run: Run, data: Assembly, part: str, samples: int, numbers: dict[str, Any], quick: bool = False
) -> Iterator[Picture]:
    """The same of what answers rest on, over as many samples as can be held; `quick`, as a report has time for."""
    if not has_single_answer(run.step, data):
        return
    dataset = data.dataset(part)
    some = dataset.batch(even_steps(len(dataset), samples))
    width = max(1, some.widest()) ** 2 * getattr(run.recipe.model, "heads", 1)
    mean = some.tokens / max(1, len(some))
    wanted = faithfulness.affordable_samples(run, mean) if quick else faithfulness.MAX_SAMPLES
    most = min(MAX_HELD_WEIGHTS // width, wanted)
    if most >= samples:
        make = partial(faithfulness.reason_figures, run, data, part, samples, most)
        yield from _by_stream(data, numbers, make)


def _return_figure(figure: Figure) -> Figure:
    return figure


def attention_section(page: Page, found: ReportData) -> None:
    """What a model attends to, on the report."""
    page.section("What it attends to")
    if found.data is None:
        page.text("Not shown: it needs the data and the model.")
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
    if hasattr(found.objective, "penalty"):
        page.text("For a sentence of your own: sciformer translate RUN FILE --alignment PICTURE")
    else:
        page.text("For every head, and for more samples: sciformer inspect RUN")
    if hidden:
        page.section("What was hidden", note=f"And what the model says of it ({part})")
    for figure, caption in hidden:
        page.figure(figure(), caption, caption)


def reasons_section(page: Page, found: ReportData) -> None:
    """What its answers rest on, where samples have one and it does not take long."""
    if found.data is None or not has_single_answer(found.run.step, found.data):
        return
    page.section("What its answers rest on")
    part = choose_part(found.data, found.objective.plot_against)
    made = list(_reason_figures(found.run, found.data, part, 1, found.numbers, quick=True))
    for _, figure, caption in made:
        page.figure(figure(), caption, caption.partition(". ")[0])
    if not made:
        page.text("That takes longer than a report may: sciformer inspect RUN")


def _short_sources(data: Assembly, part: str, count: int) -> list[str]:
    """The sources of some samples, short enough to be drawn."""
    from ...generation.translate import columns_of

    (name, _), found = columns_of(data), []
    for table in pieces(data.dataset(part).source):
        found += [str(text) for text in np.asarray(table[name]) if 8 < len(str(text)) < 120]
    return [found[i] for i in even_steps(len(found), count)] if found else []


def choose_part(data: Assembly, column: str = "") -> str:
    """The part to look at: the one with most values of a column if it is given; test, valid, another, train."""
    parts = sorted(data.parts(), key=lambda part: (part == "train", part != "test", part != "valid"))

    def values(part: str) -> int:
        known = column in data.dataset(part).batch(np.arange(1)).samples
        return len(np.unique(data.dataset(part).sample_column(column))) if known and part != "train" else 0

    return max(parts, key=values) if column else parts[0]
