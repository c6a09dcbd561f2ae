"""Figures of measured results, in the style of the guides."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE: Any = {"font.size": 8.0, "savefig.dpi": 110, "savefig.bbox": "tight"}
NAMES = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM", "attention": "with attention", "transformer": "Transformer"}
COLOURS = {"rnn": "#bbbbbb", "gru": "#ccbb44", "lstm": "#ee6677", "attention": "#4477aa", "transformer": "#228833"}
GALAXIES = {
    "resnet18": ("ResNet-18", "#ee6677"),
    "vit": ("Vision Transformer", "#4477aa"),
    "vit4": ("the same, patches of 4", "#228833"),
    "linformer": ("the same, Linformer", "#66ccee"),
}
FLOOR = 1e-16  # of gradients in the picture
Rows = dict[str, dict[str, Any]]


def draw_memory(rows: Rows) -> Figure | None:
    """Plot accuracy of recall and gradient at the symbol against the lag."""
    found = {
        model: sorted((row["lag"], row) for name, row in rows.items() if name.startswith(f"memory.{model}."))
        for model in NAMES
    }
    found = {model: line for model, line in found.items() if line}
    if not found:
        return None
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for model, line in found.items():
        lags = [lag for lag, _ in line]
        name = "RNN with attention" if model == "attention" else NAMES[model]
        style = {"color": COLOURS[model], "marker": "o", "markersize": 3}
        left.plot(lags, [row["value"] for _, row in line], label=name, **style)
        for when, dash in (("before", "--"), ("after", "-")):
            values = np.maximum([row[f"gradient_{when}"] for _, row in line], FLOOR)
            right.plot(lags, values, dash, alpha=0.6 if when == "before" else 1, **style)
    rng = next(iter(found.values()))[0][1]["chance"]
    left.axhline(rng, color="black", linewidth=0.6, linestyle=":")
    left.annotate("chance", (left.get_xlim()[0] or 2, rng), xytext=(4, 3), textcoords="offset points")
    left.set(xscale="log", ylim=(0, 1.03), xlabel="lag: symbols of noise", ylabel="accuracy of recall")
    right.set(xscale="log", yscale="log", xlabel="lag: symbols of noise", ylabel="gradient at the symbol / at the end")
    right.set_title("before training (dashed) and after", fontsize=8)
    left.legend(frameon=False, fontsize=7, loc="center left")
    for axes in (left, right):
        _lags(axes, [lag for lag, _ in next(iter(found.values()))])
    return figure


def _lags(axes: Axes, lags: list[int]) -> None:
    axes.set_xticks(lags, [str(lag) for lag in lags])
    axes.minorticks_off()


def draw_pronouns(rows: Rows) -> Figure | None:
    """Plot the accuracy of the pronoun against the distance of its noun.

    Solid lines: after the right words. Dashed lines: in the model's own translation.
    """
    figure = Figure(figsize=(4.2, 2.6), layout="constrained")
    axes, seen = figure.subplots(), False
    for model, name in (("lstm", "LSTM"), ("attention", "LSTM with attention"), ("transformer", "Transformer")):
        line = sorted(
            (row["distance"], row["value"], row["spread"] or 0, _mean(row["written"]))
            for key, row in rows.items()
            if key.startswith(f"pronoun.{model}.") and "distance" in row
        )
        if line:
            seen = True
            distance, value, spread, written = map(np.array, zip(*line))
            axes.plot(distance, value, color=COLOURS[model], marker="o", markersize=3, label=name)
            axes.plot(distance, written, "--", color=COLOURS[model], linewidth=1)
            axes.fill_between(distance, value - spread, value + spread, color=COLOURS[model], alpha=0.2, linewidth=0)
    if not seen:
        return None
    axes.axhline(1 / 3, color="black", linewidth=0.6, linestyle=":")
    axes.set(ylim=(0, 1.03), xlabel="words between noun and «it»", ylabel="er, sie or es: right")
    axes.set_title("after the right German words, and (dashed) in its own translation", fontsize=8)
    axes.legend(frameon=False, fontsize=7, loc="lower left")
    return figure


def draw_hunger(rows: Rows) -> Figure | None:
    """Plot the accuracy on galaxies against the number of training images.

    Bands show the spread over seeds.
    """
    figure = Figure(figsize=(4.2, 2.6), layout="constrained")
    axes, lines = figure.subplots(), 0
    for model, (name, colour) in GALAXIES.items():
        line = sorted(
            (int(key.split(".")[1]), row["value"], row["spread"] or 0)
            for key, row in rows.items()
            if key.startswith("galaxies.") and key.endswith(f".{model}.accuracy")
        )
        if len(line) > 1:
            lines += 1
            number, value, spread = map(np.array, zip(*line))
            axes.plot(number, 100 * value, color=colour, marker="o", markersize=3, label=name)
            axes.fill_between(number, *(100 * (value + side * spread) for side in (-1, 1)), color=colour, alpha=0.2)
    if not lines:
        return None
    axes.set(xscale="log", xlabel="galaxies to learn from", ylabel="told right, %")
    axes.xaxis.set_major_formatter(lambda number, _: f"{number:,.0f}")
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    return figure


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def draw_attention(rows: Rows) -> Figure | None:
    """Draw the decoder's attention before er, sie or es, in three sentences.

    The sentences differ in the noun.
    """
    models = {"attention": "LSTM with attention", "transformer": "Transformer"}
    found = {
        name: rows[key]["attention"] for model, name in models.items() if (key := f"pronoun.{model}.accuracy") in rows
    }
    panels = [(f"{name}, at the source", seen, seen["pronouns"]) for name, seen in found.items()]
    panels += [
        (f"{n}, on written words", seen["back"], seen["pronouns"]) for n, seen in found.items() if "back" in seen
    ]
    if not panels:
        return None
    figure = Figure(figsize=(6.4, 1.5 * len(panels) + 0.3), layout="constrained")
    for axes, (name, seen, pronouns) in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels):
        weights = np.array(seen["weights"])
        image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        words = ["\n".join(dict.fromkeys(column)) for column in zip(*seen["words"])]
        axes.set_xticks(range(weights.shape[1]), words[: weights.shape[1]], fontsize=7)
        axes.tick_params("x", rotation=60)
        for label, word in zip(axes.get_xticklabels(), words):
            if "\n" in word:  # the nouns, one for each line
                label.set(rotation=0, ha="center", fontsize=6, fontweight="bold")
            else:
                label.set(ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(weights)), [f"→ {word}" for word in pronouns])
        head = "" if seen["of"] == 1 else f": {seen['head'].removeprefix('decoder.')} of {seen['of']}, most at the noun"
        axes.set_title(f"{name}{head}", fontsize=8)
        figure.colorbar(image, ax=axes, fraction=0.03)
    return figure
