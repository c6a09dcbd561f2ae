"""Attention to each stream, for models with several streams in one trunk."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ..assembly import Assembly
from ..data.batch import Batch
from ..data.random import Floats
from .attention import answering_token, hide_tokens, map_title, watch
from .plots import style
from .plots.attention import FONT_SIZE


class Shares(NamedTuple):
    """Share of attention on each stream, as a mean over heads and samples.

    shares   {map: {stream: share}}, in order of depth; a class token gets the rest
    tokens   {stream: share of the tokens}, the share of uniform attention
    """

    shares: dict[str, dict[str, float]]
    tokens: dict[str, float]


def attention_shares(step: Any, assembly: Assembly, batch: Batch) -> Shares:
    """Share of the attention to the tokens of each stream, by map.

        share of stream s = mean over samples, heads and queries i of sum over tokens j of s of a_ij

    Queries are the tokens of all streams; if a class token or a pooling gives the prediction, it is the only query.
    Samples without any token are left out.
    """
    _, prepared = hide_tokens(assembly, batch)
    names = list(assembly.tokens)
    record = watch(step, assembly, prepared, names[0]).attention
    front = int(answering_token(step.model, names[0]) == "class")
    lengths = {name: prepared.streams[name].lengths for name in names}
    total = np.sum(list(lengths.values()), 0)
    some = total > 0
    found: dict[str, dict[str, float]] = {}
    for full in record:
        whose, _, name = full.partition(".")
        if whose == names[0] and some.any():
            found[name] = {key: float(_shares(record, name, names, key, front, lengths)[some].mean()) for key in names}
    return Shares(found, {name: float((n[some] / total[some]).mean()) for name, n in lengths.items() if some.any()})


def _shares(
    record: dict[str, Any], name: str, names: list[str], key: str, front: int, lengths: dict[str, Any]
) -> Floats:
    """Share (B,) of the attention to the stream `key`, for the map `name`."""
    if name.startswith("pool"):
        return np.asarray(record[f"{key}.{name}"][:, :, :1].double().sum((2, 3)).mean(1).cpu())
    if front:
        return np.asarray(record[f"{key}.{name}"][:, :, 0, front:].double().sum(2).mean(1).cpu())
    sums, count = np.zeros(len(lengths[key])), np.sum(list(lengths.values()), 0)
    for query in names:
        weights = record[f"{query}.{name}" if query == key else f"{query} to {key}.{name}"]
        received = weights.double().sum(3).mean(1).cpu().numpy()  # (B, N), over the keys
        sums += np.where(np.arange(received.shape[1]) < lengths[query][:, None], received, 0).sum(1)
    return sums / np.maximum(1, count)


def draw_shares(found: Shares) -> Figure:
    """Plot the share of attention on each stream against the depth."""
    figure = Figure(figsize=(5.0, 3.0), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(found.shares), dtype=np.float64)
    style.quiet_frame(axes)
    for i, (stream, uniform) in enumerate(found.tokens.items()):
        style.draw_line(axes, places, np.array([one[stream] for one in found.shares.values()]), i, stream)
        axes.axhline(uniform, color=style.LINE_COLOURS[i % len(style.LINE_COLOURS)], linestyle="--", linewidth=0.8)
    axes.set_xticks(places, [map_title(name) for name in found.shares], rotation=30, ha="right")
    axes.set_ylim(0, 1)
    style.label_axes(axes, "", "share of attention")
    axes.legend(frameon=False, fontsize=FONT_SIZE)
    return figure
