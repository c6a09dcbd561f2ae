"""Pictures of what a model looks at, for `sciformer inspect` and for the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from ...assembly import Assembly, silent
from ...data.source import pieces
from ...errors import UserError
from .. import alignment, positions
from .. import attention as looking
from .. import distance as depth
from .. import faithfulness as reasons
from .. import masked as hidden
from ..attention import even, name_of
from ..attribution import answers
from ..plots import heads
from ..plots.style import any_letters, two
from .page import Page, save

if TYPE_CHECKING:
    from ...run import Run
    from .report import Found

Log = Callable[[str], None]
Picture = tuple[str, Callable[[], Figure], str]

HELD = 1 << 25  # attention weights of a block that are held at once
WORDS = 80  # tokens of a sample up to which matrices of attention are drawn


def inspect_run(run: Run, out: str | Path, samples: int = 3, part: str = "", log: Log = silent) -> list[Path]:
    """Pictures of what a model attends to, as PNG files in the folder `out`.

    For each of some samples of a part (test, or valid, unless given) its drawing beside the attention its tokens
    receive, and once more for every head of every block; for the first one the weights head by head as matrices, if it
    is short; the reach of the heads; how alike position codes are. Where samples have one answer: what that comes from,
    and how it changes without those tokens.
    """
    if samples < 1:
        raise UserError(f"the number of samples must be 1 or more, not {samples}", key="--samples")
    data, written = run.data(), []
    Path(out).mkdir(parents=True, exist_ok=True)
    with any_letters():
        part = part or shown(data, run.recipe.objective.along)
        made = chain(_attended(run, data, part, samples, {}, log), _reasons(run, data, part, samples, {}))
        for name, figure, _ in made:
            written.append(Path(out) / f"{name}.png")
            save(figure(), written[-1])
    return written


def _attended(
    run: Run, data: Assembly, part: str, samples: int, numbers: dict[str, Any], log: Log
) -> Iterator[Picture]:
    """(name, how to draw it, caption) of what is attended to in samples; reach and positions are left in `numbers`."""
    if hasattr(data.objective, "penalty"):  # what is written looks at what it is written from
        for name, drawn, caption in alignment.draw_some(run, _lines(data, part, samples)):
            yield name, partial(_as_drawn, drawn), caption
        return
    dataset, column = data.dataset(part), run.recipe.objective.along
    unit = next(iter(data.tokens.values())).distance_in
    batch = dataset.batch(even(len(dataset), samples))
    width = int(batch.stream.lengths.max(initial=1)) ** 2 * getattr(run.recipe.model, "heads", 1)
    if width * len(batch) > HELD:
        log(f"Samples of {batch.stream.lengths.max():,} tokens are too long to show who looks at whom.")
        return
    look = looking.attention_maps(run.step, data, batch)
    for row in range(len(batch)):
        caption = f"{name_of(batch, row, run.recipe.objective)}, and the attention of its tokens."
        yield f"sample-{row + 1}", partial(looking.draw_attention, look, data, row), caption
        for form in heads.forms(data, look, row):
            yield f"{form}-{row + 1}", partial(looking.draw_attention, look, data, row, form), f"The same, {form}."
        if look.watch.attention and look.seen.stream.lengths[row] and heads.has_shape(data, look, row):
            yield f"heads-{row + 1}", partial(heads.draw_every_head, look, data, row), "Every head of every block."
    if (seen := hidden.draw_hidden(run.step, data, batch)) is not None:
        yield "hidden", partial(_as_drawn, seen), "What was hidden, and what the model says of it."
    if (codes := positions.position_similarity(run.step, data, batch)) is not None:
        near, others = codes.neighbours
        numbers["positions"] = {"places": len(codes.values), "correlation": codes.correlation}
        numbers["positions"] |= {"neighbours": near, "others": others}
        draw = partial(positions.draw_positions, codes, unit)
        yield "positions", draw, "How alike the codes of two positions are."
    if not look.watch.attention:
        mixed = getattr(run.recipe.model, "compress", None) is not None
        log("This trunk looks at mixtures of tokens." if mixed else "This trunk has no attention.")
        return
    if looking.self_attention(look) and 0 < look.seen.stream.lengths[0] <= WORDS:
        yield "heads", partial(looking.draw_matrices, look, data, 0), "Who looks at whom in the first sample."
    few = max(1, min(64, HELD // (2 * width)))
    far = depth.attention_distances(
        looking.attention_maps(run.step, data, dataset.batch(even(len(dataset), few))), data
    )
    if not far:
        return
    deeper = depth.depth(far)
    numbers["reach"] = {name: {"heads": r.heads.mean(0), "uniform": r.uniform.mean()} for name, r in far.items()}
    numbers["depth"] = {"correlation": deeper.correlation}
    words = f"How far each head looks, over {min(few, len(dataset))} samples"
    words += f"; correlation with depth {two(deeper.correlation)}." if np.isfinite(deeper.correlation) else "."
    yield "reach", partial(depth.draw_reach, far, unit), words
    numeric = column in batch.samples and batch.samples[column].dtype.kind in "iuf"
    judged = [data.dataset(name) for name in data.parts() if name != "train"] or [dataset]
    if numeric and (along := depth.attention_distance_along(run.step, data, judged, column, min(16, few))) is not None:
        numbers["reach_along"] = along._asdict()
        caption = f"How far attention reaches against {column}, and its deviation from sample to sample."
        yield "reach-along", partial(depth.draw_reach_along, along, column, unit), caption


def _reasons(
    run: Run, data: Assembly, part: str, samples: int, numbers: dict[str, Any], quick: bool = False
) -> Iterator[Picture]:
    """The same of what answers rest on, over as many samples as can be held; `quick`, as a report has time for."""
    if not answers(run.step, data):
        return
    dataset = data.dataset(part)
    lengths = dataset.batch(even(len(dataset), samples)).stream.lengths
    width = int(lengths.max(initial=1)) ** 2 * getattr(run.recipe.model, "heads", 1)
    most = min(HELD // width, reasons.affordable(run, float(lengths.mean())) if quick else reasons.SAMPLES)
    if most >= samples:
        yield from reasons.pictures(run, data, part, samples, numbers, most)


def _as_drawn(figure: Figure) -> Figure:
    return figure


def attention_section(page: Page, found: Found) -> None:
    """What a model attends to, on the report."""
    page.section("What it attends to")
    if found.data is not None and hasattr(found.objective, "penalty"):
        part = shown(found.data)
        try:
            for _, figure, caption in _attended(found.run, found.data, part, 3, found.numbers, page.text):
                page.figure(figure(), caption, caption)
        except UserError as error:
            page.text(f"Not shown: {error}")
        page.text("For a sentence of your own: sciformer translate RUN FILE --alignment PICTURE")
        return
    if found.data is None or len(found.data.tokens) > 1:
        page.text("Not shown: it needs the data, the model and one stream of tokens.")
        return
    part = shown(found.data, found.objective.along)
    for name, figure, caption in _attended(found.run, found.data, part, 3, found.numbers, page.text):
        if not name.startswith(("heads", "hidden")):  # those have a section of their own
            page.figure(figure(), caption, caption)
    page.text("For every head, and for more samples: sciformer inspect RUN")


def reasons_section(page: Page, found: Found) -> None:
    """What its answers rest on, where samples have one and it does not take long."""
    if found.data is None or not answers(found.run.step, found.data):
        return
    page.section("What its answers rest on")
    made = list(_reasons(found.run, found.data, shown(found.data, found.objective.along), 1, found.numbers, quick=True))
    for _, figure, caption in made:
        page.figure(figure(), caption, caption.partition(". ")[0])
    if not made:
        page.text("That takes longer than a report may: sciformer inspect RUN")


def _lines(data: Assembly, part: str, count: int) -> list[str]:
    """The sources of some samples, short enough to be drawn."""
    from ...generation.translate import columns_of

    (name, _), found = columns_of(data), []
    for table in pieces(data.dataset(part).source):
        found += [str(text) for text in np.asarray(table[name]) if 8 < len(str(text)) < 120]
    return [found[i] for i in even(len(found), count)] if found else []


def shown(data: Assembly, column: str = "") -> str:
    """The part to look at: the one with most values of a column if it is given; test, valid, another, train."""
    parts = sorted(data.parts(), key=lambda part: (part == "train", part != "test", part != "valid"))

    def values(part: str) -> int:
        known = column in data.dataset(part).batch(np.arange(1)).samples
        return len(np.unique(data.dataset(part).sample_column(column))) if known and part != "train" else 0

    return max(parts, key=values) if column else parts[0]
