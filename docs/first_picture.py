"""Draw pictures/any-token.png, the first picture of the README, from pictures of the guides."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parent
PANELS = {  # title: picture, left, top, right, bottom in pixels; the last one is as wide as the others together
    "words of a translation": ("text-alignment.png", 24, 28, 542, 490),
    "patches of an image": ("pictures/images-reasons.png", 179, 34, 350, 205),
    "particles of a jet": ("jets-attention.png", 590, 52, 760, 221),
    "observations of a star, folded with its period": ("lightcurves-attention.png", 80, 572, 1092, 734),
}


def draw() -> plt.Figure:
    """Four kinds of tokens, coloured by the attention that they receive."""
    figure = plt.figure(figsize=(9, 4.9), dpi=110)
    grid = figure.add_gridspec(2, 3, height_ratios=(2.05, 1), width_ratios=(1.12, 1, 1), wspace=0.06, hspace=0.16)
    cells = [grid[0, 0], grid[0, 1], grid[0, 2], grid[1, :]]
    for cell, (title, (name, left, top, right, bottom)) in zip(cells, PANELS.items(), strict=True):
        axes = figure.add_subplot(cell)
        axes.imshow(plt.imread(DOCS / name)[top:bottom, left:right], interpolation="antialiased")
        axes.set_title(title, fontsize=10)
        axes.axis("off")
    return figure


if __name__ == "__main__":
    draw().savefig(DOCS / "pictures" / "any-token.png", bbox_inches="tight")
