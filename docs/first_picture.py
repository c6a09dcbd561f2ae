"""Draw pictures/any-token.png, the first picture of the README, from pictures of the guides."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parent
PANELS = {  # title: picture, left, top, right, bottom in pixels
    "words of a translation": ("text-alignment.png", 0, 22, 472, 490),
    "particles of a jet": ("jets-attention.png", 572, 50, 776, 282),
    "observations of a star": ("lightcurves-attention.png", 84, 586, 1092, 734),
}


def draw() -> plt.Figure:
    """Three kinds of tokens, coloured by the attention that they receive."""
    figure = plt.figure(figsize=(9, 2.5), dpi=110)
    grid = figure.add_gridspec(1, 3, width_ratios=(1, 0.85, 1.9), wspace=0.03)
    for cell, (title, (name, left, top, right, bottom)) in zip(grid, PANELS.items(), strict=True):
        axes = figure.add_subplot(cell)
        axes.imshow(plt.imread(DOCS / name)[top:bottom, left:right])
        axes.set_title(title, fontsize=9)
        axes.axis("off")
    return figure


if __name__ == "__main__":
    draw().savefig(DOCS / "pictures" / "any-token.png", bbox_inches="tight")
