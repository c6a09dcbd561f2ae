"""Patches as tokens: rectangular pieces of images, maps and lattices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field, model_validator
from torch import nn

from ...data.batch import Batch, Stream
from ...data.columns import Array, Table
from ...data.random import SampleRandom
from ...errors import UserError
from ...tokens.cutting import PatchGrid
from ...tokens.protocols import (
    Augmentable,
    Editable,
    Exportable,
    Gridded,
    Invertible,
    Mask,
    Maskable,
    Readout,
    Windowed,
)
from .augment import Augmentation
from .column import ImageColumn, group_equal_rows
from .draw import draw_image, draw_side_by_side
from .export import ImagePreprocessing
from .layers import PatchEmbedding, PatchReadout, Pixels, ResidualStem, Stem
from .levels import round_to_levels
from .png import PICTURE_SUFFIX, write_pictures
from .scaling import STRETCHES, TARGET_PREFIX, denormalise_patches, learn_scaling, normalise_patches, unstretch_values

Side = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]


class Patches(Maskable, Windowed, Augmentable, Gridded, Exportable, Editable, Invertible):
    """Patches of images, with their row and column as position.

    An image has the shape (height, width) or (height, width, channels); shapes may differ between images. Images are
    padded at the right and bottom to multiples of the patch size, with the mean of the channel. If an image differs in
    size from the training images, its patch positions are interpolated to the grid of the training images.
    """

    source_columns: ClassVar[tuple[str, ...]] = ("image",)
    hides: ClassVar[tuple[str, ...]] = ("patch",)
    model_keys: ClassVar[tuple[str, ...]] = ("embed",)
    host_columns: ClassVar[tuple[str, ...]] = ("size",)
    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = (
        *("window", "periodic", "target"),
        *("augment", "crop", "rotate", "shift", "noise_std"),
    )
    changeable_columns: ClassVar[tuple[str, ...]] = ("patch",)
    coordinates: ClassVar[tuple[str, ...]] = ("row", "column")
    suffix: ClassVar[str] = PICTURE_SUFFIX
    continuous: ClassVar[bool] = True

    patch: Side | tuple[Side, Side] = 4
    """Patch size in pixels: the side of a square, or height and width (default: 4)."""
    step: int | None = Field(default=None, ge=1)
    """Stride of the patches in pixels; patches overlap if it is below the patch size (default: the patch size)."""
    window: Side | tuple[Side, Side] | None = None
    """Window size in patches: the side of a square, or rows and columns (default: no windows). Larger images are cut
    into windows of this size, at random positions in training and at equal distances in evaluation."""
    embed: Literal["linear", "convolution", "residual", "none"] = "linear"
    """Patch embedding (default: linear). `linear`: one matrix, as in ViT. `convolution`: a stem of convolutions with
    stride 2 over the whole image. `residual`: a small ResNet over the whole image, with batch norms, as in the hybrid
    ViT. `none`: raw pixels, for trunks on whole images (resnet2d)."""
    target: Literal["pixels", "patch"] = "pixels"
    """Target of masked patches (default: pixels). `pixels`: the normalised pixels. `patch`: the pixels normalised by
    mean and standard deviation of their patch, as in masked autoencoders."""
    stretch: Literal["none", "asinh", "log", "sqrt"] = "none"
    """Stretch of the absolute value x of a pixel before scaling (default: none): asinh(x / softening),
    log(1 + x / softening) or sqrt(x). The sign is kept."""
    softening: float = Field(default=1.0, gt=0)
    """Softening of asinh and log, in units of the data; pixel values above it are compressed (default: 1)."""
    scale: Literal["channel", "image", "none"] = "channel"
    """Normalisation of pixels (default: channel). `channel`: by mean and standard deviation of each channel over the
    training data. `image`: first as `channel`, then by mean and standard deviation of the visible patches of each
    image. `none`: no normalisation."""
    periodic: bool = False
    """Periodic boundaries: distances wrap around the edges, and `augment: roll` is allowed (default: false)."""
    augment: tuple[Literal["flip", "turn", "roll", "negate", "crop", "rotate", "shift", "noise"], ...] = ()
    """Random augmentations in training (default: none). flip: mirror. turn: rotate by right angles. roll: shift with
    wrap-around. negate: change the sign. crop: enlarge a part. rotate: rotate by any angle. shift: move by a few
    pixels. noise: add Gaussian noise. Pixels beyond an edge are mirrored, or wrapped with `periodic: true`."""
    crop: tuple[Share, Share] = (0.5, 1.0)
    """Smallest and largest share of the area that `augment: crop` keeps, at constant aspect ratio (default: 0.5, 1)."""
    rotate: float = Field(default=180.0, ge=0, le=180)
    """Largest angle of `augment: rotate` in degrees, in either direction (default: 180)."""
    shift: int = Field(default=2, ge=0, le=1 << 16)
    """Largest shift of `augment: shift` in pixels, along each axis (default: 2)."""
    noise_std: float = Field(default=0.1, ge=0, le=10**4)
    """Standard deviation of `augment: noise`, in standard deviations of the channel (default: 0.1)."""

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.window is not None and self.periodic:
            raise ValueError("tokens.window cannot be used with tokens.periodic: windows have no periodic edges")
        return self

    # Tokens and their positions

    @property
    def optional_columns(self) -> tuple[str, ...]:
        return ("image_shape",)

    @property
    def invariances(self) -> dict[str, str]:
        each = self.scale == "image" and self.stretch == "none"
        return {"image_shape": "scale", **({"image": "scale"} if each else {})}

    def count_tokens(self, known: Callable[..., Array | None]) -> Array | None:
        shapes = known("image_shape")
        return None if shapes is None else np.asarray(self._grids(shapes).prod(1), np.int64)

    def _grids(self, shapes: Array) -> Array:
        """Rows and columns (B, 2) of patches of images; (0, 0) for a missing image."""
        return np.where(np.asarray(shapes) > 0, self.cutting.grid(shapes), 0)

    @property
    def sides(self) -> tuple[int, int]:
        return (self.patch, self.patch) if isinstance(self.patch, int) else self.patch

    @property
    def cutting(self) -> PatchGrid:
        sides = self.sides
        if self.step is not None and self.step > min(sides):
            message = f"tokens.step must be at most the side of a patch, {min(sides)}, not {self.step}"
            raise UserError(message, key="tokens.step")
        return PatchGrid(sides, sides if self.step is None else (self.step, self.step))

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn the largest image shape, and mean and standard deviation of each channel."""
        found = learn_scaling(self, tables)
        self.state.pop("varies", None)
        self.state.update(found)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the largest training image, or of a window."""
        if "shape" not in self.state:
            raise UserError("the patch tokens have not been fitted on images yet", hint="Call fit, or load a run.")
        height, width, channels = self.state["shape"]
        if self.window_shape is not None:
            down, aside = self.cutting.covered(self.window_shape)
            height, width = min(height, down), min(width, aside)
        return height, width, channels

    @property
    def window_shape(self) -> tuple[int, int] | None:
        """Rows and columns of a window, limited to the largest training image."""
        if self.window is None:
            return None
        rows, columns = (self.window, self.window) if isinstance(self.window, int) else self.window
        if "shape" in self.state:
            down, aside = self.cutting.grid(self.state["shape"][:2]).tolist()
            rows, columns = min(rows, down), min(columns, aside)
        return rows, columns

    @property
    def random_windows(self) -> bool:
        return True

    def sample_shapes(self, stream: Stream) -> Array:
        return self._grids(self._sizes(stream))

    def shift_windows(self, stream: Stream, starts: Array) -> Stream:
        starts, columns = np.repeat(starts, stream.lengths, 0), stream.columns
        assert self.window_shape is not None
        size = np.minimum(columns["size"] - starts * self.cutting.steps, self.cutting.covered(self.window_shape))
        return stream.with_columns(at=(columns["at"] - starts).astype(np.int32), size=size.astype(np.int32))

    @property
    def varies(self) -> bool:
        return bool(self.state.get("varies", False))

    @property
    def mixes_tokens(self) -> bool:
        """Whether the embedding is a convolution over neighbouring patches."""
        return self.embed in ("convolution", "residual")

    @property
    def raster(self) -> tuple[int, int, int]:
        """Height, width and channels of a patch, for trunks on whole images."""
        self._refuse_overlap("the image cannot be assembled from patches that overlap")
        return (*self.sides, self.shape[2])

    def _refuse_overlap(self, why: str) -> None:
        if self.cutting.steps != self.cutting.sides:
            raise UserError(f"{why} (tokens.step: {self.step})", hint="Remove tokens.step.", key="tokens.step")

    @property
    def pixels(self) -> int:
        return self.sides[0] * self.sides[1] * self.shape[2]

    @property
    def axes(self) -> int:
        return 2

    @property
    def grid_shape(self) -> tuple[int, int]:
        rows, columns = self.cutting.grid(self.shape[:2]).tolist()
        return rows, columns

    @property
    def initial_std(self) -> float:
        """Initial standard deviation of learned positions.

        The value is small for periodic images, because all positions are equivalent.
        """
        return 0.02 if self.periodic else 0.5

    def tokenize(self, table: Table) -> Stream:
        """Divide images into patches, in row-major order.

        Columns: `patch` (T, pixels times channels) and `at` (T, 2), the row and column on the grid. If shapes vary or
        differ from the training shape, `at` is interpolated to the training grid, and two columns are added: `cell`
        (T, 2), the row and column in the image, and `size` (T, 2), height and width of the image. With windows, `at` is
        not interpolated, and only `size` is added.
        """
        pictures, shape = ImageColumn(table), self.shape
        if pictures.channels != shape[2]:
            where = f" in an array of shape {np.shape(table['image'])}" if pictures.one_shape else ""  # type: ignore[arg-type]
            raise UserError(
                f"images must have {shape[2]} channels, as in training, not {pictures.channels}{where}",
                hint="The axes are (n, height, width, channels), or (n, height, width).",
            )
        grids = self._grids(pictures.shapes)
        lengths = grids.prod(1).astype(np.int64)
        starts, each = lengths.cumsum() - lengths, np.repeat(grids, lengths, 0)
        place = np.arange(len(each)) - np.repeat(starts, lengths)
        cell = np.stack([place // each[:, 1], place % each[:, 1]], 1).astype(np.int32)
        if pictures.one_shape:
            patches = self.cutting.cut(pictures.values, self._fill)
        else:
            patches = np.empty((len(each), self.pixels), np.result_type(pictures.values, np.float32))
            for rows, images in pictures.groups():
                patches[_tokens(starts[rows], lengths[rows[0]])] = self.cutting.cut(images, self._fill)
        found = {"patch": patches, "at": cell}
        as_learned = pictures.one_shape and not self.varies and pictures.values.shape[1:3] == shape[:2]
        if self.window is None and as_learned:
            return Stream(found, lengths)
        found["size"] = np.repeat(pictures.shapes, lengths, 0).astype(np.int32)
        if self.window is None:
            at = (cell + 0.5) * (np.asarray(self.grid_shape) / each) - 0.5
            found |= {"at": at.astype(np.float32), "cell": cell}
        return Stream(found, lengths)

    @property
    def _fill(self) -> Array:
        """Value of padding pixels in each channel; it is 0 after normalisation."""
        return unstretch_values(np.asarray(self.state.get("mean", 0.0)), self.stretch, self.softening)

    def image(self, patches: Array, size: tuple[int, int] | None = None) -> Array:
        """Assemble patches (..., N, pixels) into images (..., height, width, channels)."""
        size, many = size or self.shape[:2], patches.shape[:-2]
        flat = patches.reshape(prod(many), *patches.shape[-2:])
        return self.cutting.assemble(flat, size).reshape(*many, *size, self.shape[2])

    def _sizes(self, stream: Stream) -> Array:
        """Height and width (B, 2) of each image; (0, 0) for a missing image."""
        sizes, some = np.zeros((len(stream), 2), np.int64), stream.lengths > 0
        sizes[some] = stream.columns["size"][stream.starts[some]] if "size" in stream.columns else self.shape[:2]
        return sizes

    def pictures(self, stream: Stream) -> list[tuple[Array, Array]]:
        """Row numbers and images (n, height, width, channels) of each size.

        Missing images are left out.
        """
        sizes, found = self._sizes(stream), []
        for rows in group_equal_rows(sizes):
            height, width = sizes[rows[0]]
            if not height:
                continue
            patches = stream.columns["patch"][_tokens(stream.starts[rows], stream.lengths[rows[0]])]
            cut = patches.reshape(len(rows), -1, patches.shape[-1])
            found.append((rows, self.image(cut, (int(height), int(width)))))
        return found

    def augment_stream(self, stream: Stream, rng: SampleRandom) -> Stream:
        if not self.augment or not len(stream):
            return stream
        patches: Array | None = None
        augmentation, (height, width, channels) = Augmentation(self), self.shape
        if "size" not in stream.columns and augmentation.permutes_pixels((height, width)):
            moved = augmentation.permute_patches(stream.columns["patch"], (height, width), channels, rng)
            return stream.with_columns(patch=moved)
        for rows, images in self.pictures(stream):
            some = SampleRandom(rng.seed, rng.epoch, np.asarray(rng.ids)[rows])
            made = self.cutting.cut(augmentation(images, some), self._fill)
            if patches is None:
                patches = np.empty(stream.columns["patch"].shape, made.dtype)
            patches[_tokens(stream.starts[rows], stream.lengths[rows[0]])] = made
        return stream if patches is None else stream.with_columns(patch=patches)

    def mix(self, stream: Stream, other: Stream, share: Array) -> Stream:
        """Mixup of images x of `stream` and y of `other`: share x + (1 - share) y."""
        if not np.array_equal(stream.columns["at"], other.columns["at"]) or "cell" in stream.columns:
            hint = "Set data.size to resize all images."
            raise UserError("mixup needs images of equal shape, but these images differ in shape", hint=hint)
        each = np.repeat(share, stream.lengths)[:, None].astype(np.float32)
        return stream.with_columns(patch=each * stream.columns["patch"] + (1 - each) * other.columns["patch"])

    # Model input and output

    def normalise(self, stream: Stream) -> Stream:
        return stream.with_columns(**normalise_patches(self, stream))

    def width(self, dim: int) -> int:
        """Width of the embedded patches; the number of pixels with `embed: none`."""
        return self.pixels if self.embed == "none" else dim

    def embedding(self, dim: int) -> nn.Module:
        if self.embed == "convolution":
            return Stem(self.raster, self.grid_shape, dim)
        if self.embed == "residual":
            return ResidualStem(self.raster, self.grid_shape, dim, self.window is not None)
        return PatchEmbedding(self.pixels, dim) if self.embed == "linear" else Pixels()

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        self._refuse_overlap("masked patches are visible in overlapping neighbours")
        return PatchReadout(self.pixels, dim)

    @property
    def masks(self) -> dict[str, Mask]:
        """Rules for masked patches; `centre` masks patches around the centre (inpainting)."""
        return {**super().masks, "centre": self._mask_centre}

    def _mask_centre(self, stream: Stream, share: float) -> Array:
        cell = _cells(stream)
        last = np.zeros((len(stream), 2))
        np.maximum.at(last, stream.sample, cell)
        away = np.abs(cell / np.maximum(1, last[stream.sample]) - 0.5).max(1)
        found, count = np.zeros(len(cell), bool), np.maximum(1, np.round(share * stream.lengths))
        found[np.lexsort((away, stream.sample))] = stream.position < count[stream.sample]
        return found

    # Generation

    def blank(self, count: int) -> Stream:
        """Grey images of the training size: patches of zeros with their positions."""
        self._refuse_overlap("images cannot be generated from patches that overlap")
        refused = {"window": self.window is not None, "target": self.target == "patch", "scale": self.scale == "image"}
        for name, found in refused.items():
            if found:
                message = f"images cannot be generated with tokens.{name}: {getattr(self, name)}"
                raise UserError(message, hint=f"Train without tokens.{name}.", key=f"tokens.{name}")
        if self.varies:
            message = "images cannot be generated by a model of images of different sizes"
            raise UserError(message, hint="Set data.size to resize all images.", key="data.size")
        rows, columns = self.grid_shape
        at = np.stack(np.divmod(np.arange(rows * columns), columns), 1).astype(np.int32)
        patches = np.zeros((count * len(at), self.pixels), np.float32)
        return Stream({"patch": patches, "at": np.tile(at, (count, 1))}, np.full(count, len(at), np.int64))

    def invert(self, stream: Stream) -> Table:
        """Images from normalised patches.

        Pixels are rounded to the values that training pixels can have.
        """
        values = denormalise_patches(self, stream, stream.columns["patch"])
        made = self.image(values.reshape(len(stream), -1, self.pixels))
        return {"image": round_to_levels(made, self.state.get("pixels"))}

    def write_samples(self, table: Table, paths: Sequence[Path]) -> None:
        write_pictures(np.asarray(table["image"]), paths)

    # Editing

    def where(self, stream: Stream, token: int) -> tuple[float, ...]:
        return tuple(_cells(stream)[token].tolist())

    def move(self, stream: Stream, token: int, *to: float) -> Stream:
        self.check_token(stream, token, *to)
        there = np.flatnonzero((_cells(stream) == to).all(1))
        if not len(there):
            raise UserError(f"the image has no patch at row {to[0]:g} and column {to[1]:g}")
        order = np.arange(len(stream.columns["patch"]))
        order[[token, there[0]]] = order[[there[0], token]]
        return stream.with_columns(patch=stream.columns["patch"][order])

    # Export

    def example(self) -> Table:
        rng = np.random.default_rng(0)
        noise = rng.normal(self.state["mean"], np.maximum(self.state["deviation"], 1e-6), (2, *self.shape))
        return {"image": unstretch_values(noise, self.stretch, self.softening).astype(np.float32)}

    def preprocessing_module(self) -> ImagePreprocessing | None:
        overlap = self.cutting.steps != self.cutting.sides
        return None if overlap or self.window is not None else ImagePreprocessing(self)

    def preprocessing(self) -> dict[str, Any]:
        words = {
            "channel": "(x - mean) / deviation of each channel",
            "image": "(x - mean) / deviation of each channel, then (x - mean) / deviation of each image",
            "none": "raw values",
        }
        first = f"x = {STRETCHES[self.stretch].formula}, then " if self.stretch != "none" else ""
        return {
            **super().preprocessing(),
            "image": dict(zip(("height", "width", "channels"), self.shape)),
            "columns": {
                "patch": "pixels of a patch, row by row, channels last; patches of an image row by row, padded at the "
                f"right and bottom with the mean of the channel; {first}{words[self.scale]}",
                "at": "row and column of the patch, from 0; for other image sizes, interpolated to the training grid",
            },
        }

    # Drawing

    def token_labels(self, stream: Stream) -> list[str]:
        return [f"{row},{column}" for row, column in _cells(stream)]

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """Draw the image with patches shaded by weight; masked patches are empty."""
        stream = sample.stream
        patches = stream.columns["patch"].astype(np.float64)
        if "hidden" in stream.columns:
            patches[stream.columns["hidden"].astype(bool)] = np.nan
        draw_image(axes, self._picture(stream, patches), self._shade(stream, weights))

    def draw_hidden(self, sample: Batch, answer: dict[str, Array], axes: Axes) -> None:
        """Draw the visible patches, the reconstruction and the true image side by side."""
        stream = sample.stream
        true, hidden = stream.columns[TARGET_PREFIX + "patch"], stream.columns["hidden"].astype(bool)
        asked = stream.columns["asked"].astype(bool)
        said = np.where(asked[:, None], denormalise_patches(self, stream, np.nan_to_num(answer["patch"])), true)
        seen = np.where(hidden[:, None], np.nan, true.astype(np.float64))
        shown = {"seen": seen, "model": said, "truth": true}
        draw_side_by_side(axes, {name: self._picture(stream, patches) for name, patches in shown.items()})

    def _picture(self, stream: Stream, patches: Array) -> Array:
        height, width = self._sizes(stream)[0].tolist()
        return self.image(patches.astype(np.float64), (height, width))

    def _shade(self, stream: Stream, weights: Array | None) -> Array | None:
        """Map (height, width) of the weights of patches; the mean where patches overlap."""
        if weights is None:
            return None
        total, count = np.zeros((2, *self._sizes(stream)[0]))
        side, wide = self.cutting.sides
        for (row, column), weight in zip(_cells(stream), np.asarray(weights)):
            down, aside = row * self.cutting.steps[0], column * self.cutting.steps[1]
            total[down : down + side, aside : aside + wide] += weight
            count[down : down + side, aside : aside + wide] += 1
        return total / np.maximum(1, count)

    def distance(self, stream: Stream) -> Array:
        """Distances between patch centres (T, T) in pixels; wrapped around periodic edges."""
        at = _cells(stream) * np.asarray(self.cutting.steps, np.float64)
        apart = np.abs(at[:, None] - at[None])
        if self.periodic:
            apart = np.minimum(apart, np.abs(self._sizes(stream)[:1] - apart))
        return np.sqrt((apart**2).sum(-1))

    @property
    def distance_unit(self) -> str:
        return "pixels"


def _cells(stream: Stream) -> Array:
    """Row and column (T, 2) of each patch in its image."""
    return stream.columns.get("cell", stream.columns["at"])


def _tokens(starts: Array, length: int) -> Array:
    """Token indices of samples with first tokens `starts` and `length` tokens each."""
    return np.asarray((starts[:, None] + np.arange(length)).reshape(-1))
