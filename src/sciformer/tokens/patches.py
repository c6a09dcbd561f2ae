"""Patches: a token is a square piece of an image, a lattice or a map; where it stands on the grid is where it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, Stream
from ..data.chance import Chance
from ..data.source import Lists, Table
from ..errors import UserError
from .base import Array, Columns, Readout, Tokens

PREFIX = "target "


class Patches(Tokens):
    """Square patches of images (height, width) or (height, width, channels)."""

    reads: ClassVar[tuple[str, ...]] = ("image",)
    hides: ClassVar[tuple[str, ...]] = ("patch",)
    free: ClassVar[tuple[str, ...]] = ("periodic", "vary")

    patch: int = Field(default=4, ge=1)
    """Pixels on a side of a patch."""
    scale: Literal["channel", "none"] = "channel"
    """Shift and scale each channel by its mean and deviation over the training data, or take values as they are."""
    periodic: bool = False
    """Whether opposite edges touch: distances go round, and `roll` is allowed."""
    vary: tuple[Literal["flip", "turn", "roll", "negate"], ...] = ()
    """Variations that leave the answer the same: mirror images, right angles, shifts round the edges, a change of
    sign."""

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn the shape of the images, and mean and deviation of their channels."""
        count, mean, squares, shape = 0, np.zeros(1), np.zeros(1), None
        for table in tables:
            images = _images(table)
            if shape is not None and shape != images.shape[1:]:
                raise UserError(f"images of one shape, {shape} as the first ones", f"{images.shape[1:]}")
            shape = images.shape[1:]
            values = images.reshape(-1, images.shape[-1]).astype(np.float64)
            bad = ~np.isfinite(values).all(-1)
            if bad.any():
                where = np.flatnonzero(bad)[0] // (shape[0] * shape[1])
                raise UserError("finite pixels", f"NaN or infinity in sample {where} ({bad.sum()} pixels in all)")
            if len(values):  # joined about their means: squares of large numbers would drown a small deviation
                more, apart = values.mean(0), values.mean(0) - mean
                share = len(values) / (count + len(values))
                squares = squares + ((values - more) ** 2).sum(0) + apart**2 * count * share
                count, mean = count + len(values), mean + apart * share
        if shape is None or not count:
            raise UserError("at least one image to train on", "none")
        if shape[0] % self.patch or shape[1] % self.patch:
            raise UserError(
                f"images whose sides are multiples of tokens.patch, {self.patch}", f"{shape[0]} x {shape[1]}"
            )
        deviation = np.sqrt(squares / count)
        self.state.update(shape=list(shape), mean=mean.tolist(), deviation=deviation.tolist())

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images."""
        if "shape" not in self.state:
            raise UserError("tokens that were fitted on images", "none yet", "Call fit, or load a run.")
        height, width, channels = self.state["shape"]
        return height, width, channels

    @property
    def axes(self) -> int:
        """Row and column."""
        return 2

    @property
    def places(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.shape[0] // self.patch, self.shape[1] // self.patch

    def tokenize(self, table: Table) -> Stream:
        """Columns `patch` (T, pixels times channels) and `at` (T, 2), row by row."""
        images = _images(table)
        if images.shape[1:] != self.shape:
            raise UserError(f"images of shape {self.shape}, as in training", f"{images.shape[1:]}")
        rows, columns = self.places
        side, channels = self.patch, self.shape[2]
        cut = images.reshape(len(images), rows, side, columns, side, channels).swapaxes(2, 3)
        places = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), -1).reshape(-1, 2)
        lengths = np.full(len(images), rows * columns, np.int64)
        flat = np.ascontiguousarray(cut.reshape(-1, side * side * channels))
        return Stream({"patch": flat, "at": np.tile(places.astype(np.int32), (len(images), 1))}, lengths)

    def image(self, patches: Array) -> Array:
        """(..., N, pixels) -> (..., height, width, channels): the way back from `tokenize`."""
        rows, columns = self.places
        side, channels = self.patch, self.shape[2]
        cut = patches.reshape(-1, rows, columns, side, side, channels).swapaxes(2, 3)
        return np.ascontiguousarray(cut).reshape(*patches.shape[:-2], *self.shape)

    def augment(self, stream: Stream, chance: Chance) -> Stream:
        """Vary each training image as `vary` allows."""
        if not self.vary:
            return stream
        patches = stream.columns["patch"]
        images = self.image(patches.reshape(len(stream), len(patches) // max(1, len(stream)), patches.shape[-1]))
        images = self._varied(images, chance)
        return stream.but(patch=self.tokenize({"image": images}).columns["patch"])

    def _varied(self, images: Array, chance: Chance) -> Array:
        height, width = images.shape[1:3]
        if "roll" in self.vary:
            if not self.periodic:
                raise UserError("tokens.periodic: true for images that may roll round their edges", "false")
            down = (np.arange(height) + chance.integers("down", height)[:, None]) % height
            aside = (np.arange(width) + chance.integers("aside", width)[:, None]) % width
            images = images[np.arange(len(images))[:, None, None], down[:, :, None], aside[:, None]]
        if "flip" in self.vary:
            images = np.where(_choice(chance.uniform("flip") < 0.5), images[:, :, ::-1], images)
        if "turn" in self.vary:
            if height != width:
                raise UserError("square images to turn by right angles", f"{height} x {width}")
            quarter = chance.integers("turn", 4)
            images = np.where(_choice(quarter >= 2), images[:, ::-1, ::-1], images)
            images = np.where(_choice(quarter % 2 == 1), np.rot90(images, axes=(1, 2)), images)
        if "negate" in self.vary:
            if images.dtype.kind in "bui":  # counts without a sign have no negative
                images = images.astype(np.float32)
            images = np.where(_choice(chance.uniform("negate") < 0.5), -images, images)
        return images

    def normalise(self, stream: Stream) -> Stream:
        """(x - mean) / deviation of each channel, for patches and for those asked for."""
        columns: dict[str, Array] = {}
        for name in ("patch", PREFIX + "patch"):
            if name in stream.columns:
                values = stream.columns[name]
                if self.scale == "channel":
                    exact = np.result_type(values, np.float32)  # the mean goes before anything is rounded
                    mean, deviation = (np.asarray(self.state[key], exact) for key in ("mean", "deviation"))
                    by_channel = values.reshape(len(values), self.patch**2, self.shape[2])
                    values = ((by_channel - mean) / np.where(deviation > 0, deviation, 1)).reshape(values.shape)
                values = values.astype(np.float32)
                if name == "patch" and "hidden" in stream.columns:
                    values[stream.columns["hidden"].astype(bool)] = 0
                columns[name] = values
        return stream.but(**columns)

    def embedding(self, dim: int) -> nn.Module:
        """A linear layer."""
        return PatchEmbedding(self.patch**2 * self.shape[2], dim)

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        """Pixels, by a linear layer and squared error."""
        return PatchReadout(self.patch**2 * self.shape[2], dim)

    def example(self) -> Table:
        """Images of noise."""
        rng = np.random.default_rng(0)
        noise = rng.normal(self.state["mean"], np.maximum(self.state["deviation"], 1e-6), (2, *self.shape))
        return {"image": noise.astype(np.float32)}

    def preprocessing(self) -> dict[str, Any]:
        """How patches are cut and scaled."""
        return {
            **super().preprocessing(),
            "image": dict(zip(("height", "width", "channels"), self.shape)),
            "columns": {
                "patch": "pixels of a square patch, row by row, channels last; patches of an image row by row; "
                + ("(x - mean) / deviation of the channel" if self.scale == "channel" else "values as they are"),
                "at": "row and column of the patch, from 0",
            },
        }

    def words(self, stream: Stream) -> list[str]:
        """Row and column."""
        return [f"{row},{column}" for row, column in stream.columns["at"]]

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """The image, its patches shaded by their weights."""
        image = self.image(sample.stream.columns["patch"][None].astype(np.float64))[0]
        grey = image if image.shape[-1] == 3 else image.mean(-1)
        low, high = float(grey.min()), float(grey.max())
        if grey.ndim == 3:
            grey = (grey - low) / max(high - low, 1e-12)
        span = (-0.5, image.shape[1] - 0.5, image.shape[0] - 0.5, -0.5)
        axes.imshow(grey, cmap="Greys", extent=span, interpolation="nearest", vmin=low, vmax=high if high > low else 1)
        if weights is not None:
            axes.imshow(np.asarray(weights).reshape(self.places), cmap="Oranges", alpha=0.6, extent=span, vmin=0)
        axes.set_xticks([])
        axes.set_yticks([])

    def distance(self, stream: Stream) -> Array:
        """Between the centres of two patches, in pixels; round the edges where they touch."""
        at = stream.columns["at"].astype(np.float64) * self.patch
        apart = np.abs(at[:, None] - at[None])
        if self.periodic:
            apart = np.minimum(apart, np.asarray(self.shape[:2]) - apart)
        return np.sqrt((apart**2).sum(-1))


class PatchEmbedding(nn.Module):
    """x = W p + b for the pixels p of a patch (arXiv 2010.11929)."""

    def __init__(self, pixels: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(pixels, dim)

    def forward(self, columns: Columns) -> Tensor:
        """patch (..., N, pixels) -> (..., N, D)."""
        return self.linear(columns["patch"])


class PatchReadout(Readout):
    """Pixels p = W h + b; the loss is the mean squared error of a patch's normalised pixels (arXiv 2111.06377)."""

    def __init__(self, pixels: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, pixels)

    def loss(self, hidden: Tensor, target: Columns, smoothing: float = 0.0) -> Tensor:
        """Mean squared error (n,)."""
        if smoothing:
            raise UserError("tokens with a vocabulary, to smooth labels", "`patches`")
        return ((self.linear(hidden).float() - target["patch"]) ** 2).mean(-1)

    def answer(self, hidden: Tensor) -> Columns:
        """The expected pixels."""
        return {"patch": self.linear(hidden)}


def _choice(chosen: Array) -> Array:
    return chosen[:, None, None, None]


def _images(table: Table) -> Array:
    if "image" not in table:
        raise UserError("a column `image`", f"columns {', '.join(table)}")
    images = table["image"]
    if isinstance(images, Lists) or images.ndim not in (3, 4):
        found = "lists" if isinstance(images, Lists) else f"an array of shape {images.shape}"
        raise UserError("images (n, height, width) or (n, height, width, channels)", found)
    return images[..., None] if images.ndim == 3 else images
