"""Codes as tokens: pictures as sequences of codewords, row by row."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from matplotlib.axes import Axes
from pydantic import Field
from torch import nn

from ....data.batch import Batch, Stream
from ....data.columns import Array, Table
from ....errors import UserError
from ....tokens.cutting import PatchGrid
from ....tokens.protocols import Invertible, Maskable, Readout
from ....tokens.vocabulary import VocabularyEmbedding, VocabularyReadout
from ..column import ImageColumn
from ..draw import draw_image
from ..levels import PixelLevels, round_to_levels
from ..png import PICTURE_SUFFIX, write_pictures
from . import autoencoder
from .kmeans import MAX_PATCHES, cluster_patches, distinct_inverse, distinct_rows, nearest_codes, thin_rows

BEGIN = 0  # id of the begin token; codeword k has the id k + 1


class Codes(Maskable, Invertible):
    """Pictures as codewords of a learned codebook, row by row, after a begin token.

    A codeword stands for a patch. Without `autoencoder`, the codebook is learned from the training pictures by k-means
    clustering of their patches, and a picture is put together from codewords. With `autoencoder`, a trained
    vector-quantised autoencoder makes the codes and draws pictures from them. All pictures have one size.
    """

    source_columns: ClassVar[tuple[str, ...]] = ("image",)
    hides: ClassVar[tuple[str, ...]] = ("ids",)
    suffix: ClassVar[str] = PICTURE_SUFFIX

    patch: int = Field(default=4, ge=1)
    """Side of a patch in pixels; the sides of a picture must be multiples of it (default: 4)."""
    codes: int = Field(default=512, ge=2, le=1 << 16)
    """Largest number of codewords of the codebook (default: 512). With fewer distinct patches,
    fewer codewords are learned."""
    autoencoder: str = ""
    """Run of a vector-quantised autoencoder, which replaces `patch` and `codes` (default: none, k-means on patches)."""
    tie: bool = False
    """Tie the weights of the last layer to the embedding (default: false)."""

    def absolute_paths(self) -> Self:
        if not self.autoencoder:
            return self
        return self.model_copy(update={"autoencoder": str(Path(self.autoencoder).expanduser().resolve())})

    # The codebook

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn the codebook, or copy the autoencoder into the state."""
        if self.autoencoder:
            self.state["autoencoder"] = autoencoder.pack(self.autoencoder)
        levels, shape, known = PixelLevels(), None, None
        for table in tables:
            images = self._images(table, shape)
            if not len(images):
                continue
            shape = images.shape[1:]
            levels.add(images)
            if not self.autoencoder:
                known = thin_rows(distinct_rows(self._cut(images), known), 4 * MAX_PATCHES)
        if shape is None:
            raise UserError("there are no images to learn a codebook from")
        self.state["shape"], self.state["pixels"] = list(shape), levels.to_json()
        self._grid_of(shape)
        if known is not None:
            book = cluster_patches(thin_rows(known), self.codes)
            self.state["codebook"] = base64.b64encode(book.astype("<f4").tobytes()).decode()

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the pictures."""
        height, width, channels = self._learned("shape")
        return height, width, channels

    def _learned(self, name: str) -> Any:
        if name not in self.state:
            raise UserError("the codes have not been learned from images yet", hint="Call fit, or load a run.")
        return self.state[name]

    @property
    def side(self) -> int:
        """Side of the patch that a code stands for."""
        return autoencoder.unpack(self._learned("autoencoder")).side if self.autoencoder else self.patch

    @property
    def codebook(self) -> Array:
        """Codewords (K, pixels) of the k-means codebook, as patches."""
        pixels = self.patch**2 * self.shape[2]
        return np.frombuffer(base64.b64decode(self._learned("codebook")), "<f4").reshape(-1, pixels)

    @property
    def size(self) -> int:
        """Size of the vocabulary: the codewords and the begin token."""
        own = autoencoder.unpack(self._learned("autoencoder")).codes if self.autoencoder else len(self.codebook)
        return own + 1

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of codes."""
        return self._grid_of(self.shape)

    def _grid_of(self, shape: Sequence[int]) -> tuple[int, int]:
        height, width, side = shape[0], shape[1], self.side
        if height % side or width % side:
            key = "tokens.autoencoder" if self.autoencoder else "tokens.patch"
            message = f"pictures of {height} x {width} pixels cannot be divided into patches of {side} x {side}"
            hint = f"Choose {key} with a side that divides height and width, or resize the pictures with data.size."
            raise UserError(message, hint=hint, key=key)
        return height // side, width // side

    @property
    def grid_shape(self) -> int:
        rows, columns = self.grid
        return rows * columns + 1

    # Pictures to codes

    def _images(self, table: Table, shape: Sequence[int] | None) -> Array:
        """Images (n, H, W, C) of a table, all of one shape."""
        column = ImageColumn(table)
        if not column.one_shape:
            hint = "Set data.size to resize all pictures."
            raise UserError("codes need pictures of one size, but the sizes of these pictures differ", hint=hint)
        if shape is not None and tuple(column.values.shape[1:]) != tuple(shape):
            found, wanted = (" x ".join(map(str, one)) for one in (column.values.shape[1:], shape))
            message = f"the codebook makes pictures of {wanted} (height, width, channels), not of {found}"
            raise UserError(message, hint="Set data.size to the size of the training pictures.", key="data.size")
        return column.values

    def _cut(self, images: Array) -> Array:
        self._grid_of(images.shape[1:])
        return PatchGrid((self.patch,) * 2, (self.patch,) * 2).cut(images, 0)

    def tokenize(self, table: Table) -> Stream:
        """Make the column `ids` (T,): the begin token, then the codes row by row."""
        images = self._images(table, self.shape)
        count = self.grid[0] * self.grid[1]
        if self.autoencoder:
            found = autoencoder.unpack(self.state["autoencoder"]).encode(images)
        else:
            patches, inverse = distinct_inverse(self._cut(images))  # most patches are background
            rows, book = (torch.from_numpy(np.array(part, np.float32)) for part in (patches, self.codebook))
            found = nearest_codes(rows, book).numpy()[inverse]
        ids = np.full((len(images), 1 + count), BEGIN, np.int32)
        ids[:, 1:] = found.reshape(len(images), count) + 1
        return Stream({"ids": ids.reshape(-1)}, np.full(len(images), 1 + count, np.int64))

    # Codes to pictures

    def blank(self, count: int) -> Stream:
        return Stream({"ids": np.full(count, BEGIN, np.int32)}, np.ones(count, np.int64))

    @property
    def new_tokens(self) -> int:
        return self.grid_shape - 1

    @property
    def allowed(self) -> Array:
        return np.arange(self.size) != BEGIN

    def invert(self, stream: Stream) -> Table:
        """Pictures from sequences of codes.

        Missing codes are replaced by the mean of the codebook.
        """
        _rows, _columns = self.grid
        ids = np.full((len(stream), self.grid_shape), BEGIN, np.int64)
        ids[stream.sample, stream.position] = stream.columns["ids"]
        codes = np.where(ids[:, 1:] == BEGIN, -1, ids[:, 1:] - 1)
        if self.autoencoder:
            made = autoencoder.unpack(self._learned("autoencoder")).decode(codes, self.shape)
        else:
            book = np.concatenate([self.codebook, self.codebook.mean(0, keepdims=True)])
            made = PatchGrid((self.patch,) * 2, (self.patch,) * 2).assemble(book[codes], self.shape[:2])
        return {"image": round_to_levels(made, self.state["pixels"])}

    def write_samples(self, table: Table, paths: Sequence[Path]) -> None:
        write_pictures(np.asarray(table["image"]), paths)

    # The model

    def embedding(self, dim: int) -> nn.Module:
        return VocabularyEmbedding(self.size, dim)

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        return VocabularyReadout(self.size, dim, embedding if self.tie else None)

    def maskable(self, stream: Stream) -> Array:
        """Mask of the codes, without the begin token."""
        return np.asarray(stream.position > 0)

    # Drawing

    def token_labels(self, stream: Stream) -> list[str]:
        return ["begin" if id == BEGIN else str(id - 1) for id in stream.columns["ids"]]

    def distance(self, stream: Stream) -> Array:
        """Distances between patches in pixels; the begin token is at the first patch."""
        place = np.maximum(0, stream.position - 1)
        at = np.stack(np.divmod(place, self.grid[1]), 1) * float(self.side)
        return np.asarray(np.sqrt(((at[:, None] - at[None]) ** 2).sum(-1)))

    @property
    def distance_unit(self) -> str:
        return "pixels"

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """Draw the picture of the codes, with patches shaded by weight.

        Patches of missing codes are empty.
        """
        stream, (rows, columns), side = sample.stream, self.grid, self.side
        picture = np.asarray(self.invert(stream)["image"], np.float64)[0]
        there = np.zeros(rows * columns, bool)
        there[: max(0, int(stream.lengths[0]) - 1)] = True
        picture[~np.kron(there.reshape(rows, columns), np.ones((side, side), bool)).astype(bool)] = np.nan
        shade = None
        if weights is not None:
            each = np.zeros(rows * columns)
            each[: len(weights) - 1] = np.asarray(weights)[1:]
            shade = np.kron(each.reshape(rows, columns), np.ones((side, side)))
        draw_image(axes, picture, shade)
