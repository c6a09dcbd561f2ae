"""Draw pictures/any-token.png, the first picture of the README, from pictures of the guides."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parent
PANELS = {  # title: picture, left, top, right, bottom in pixels
    "words of a translation": ("text-alignment.png", 24, 34, 472, 490),
    "patches of an image": ("pictures/images-reasons.png", 179, 34, 350, 205),
    "particles of a jet": ("jets-attention.png", 590, 54, 776, 250),
    "observations of a star": ("lightcurves-attention.png", 84, 586, 1092, 734),
}


def draw() -> plt.Figure:
    """Four kinds of tokens, coloured by the attention that they receive."""
    figure = plt.figure(figsize=(10, 2.3), dpi=110)
    grid = figure.add_gridspec(1, 4, width_ratios=(1, 0.95, 0.9, 1.9), wspace=0.05)
    for cell, (title, (name, left, top, right, bottom)) in zip(grid, PANELS.items(), strict=True):
        axes = figure.add_subplot(cell)
        axes.imshow(plt.imread(DOCS / name)[top:bottom, left:right])
        axes.set_title(title, fontsize=9)
        axes.axis("off")
    return figure


if __name__ == "__main__":
    draw().savefig(DOCS / "pictures" / "any-token.png", bbox_inches="tight")
