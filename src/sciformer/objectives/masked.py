"""Masked modelling: BERT, masked autoencoders, ASTROMER."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..data.batch import Batch, ModelInputs, Stream, StreamView, sorted_rows
from ..data.columns import Array
from ..data.random import SampleRandom, key, mix
from ..errors import UserError, one_of
from ..nn.ragged import Ragged
from ..tokens.base import Tokens, stream_part
from ..tokens.protocols import Maskable
from .base import PREFIX, Objective, Outputs
from .next_token import flat_targets, tokens_agree
from .stream_dropout import draw_streams

Ratio = Annotated[float, Field(gt=0, le=1)]
PLACES = "asked places"  # sample column (B, K): positions of masked tokens, from 1; 0 is padding
PLACES_MULTIPLE = 16  # K is a multiple of this, so that a compiled step sees few shapes


class Masked(Objective):
    """Prediction of masked tokens: -sum ln p(masked token | visible tokens).

    A share of the tokens is selected. Most of these tokens are hidden, some are replaced by random tokens, and some
    stay unchanged. Any visible token may therefore be wrong, so the model must use the context of every token (arXiv
    1810.04805).
    """

    unit: ClassVar[str] = "tokens"
    hides: ClassVar[bool] = True
    reads_out: ClassVar[bool] = True

    mask_ratio: Ratio | tuple[Ratio, Ratio] = 0.15
    """Share of the tokens to mask and predict, at least one token in each sample (default: 0.15). Two numbers are a
    range, from which the share of each sample is drawn."""
    mask: str = ""
    """Rule for choosing the masked tokens (default: random tokens). last: the end of each sample, for a forecast. Some
    kinds of tokens have more rules, e.g. centre for patches, for inpainting."""
    mask_length: float | None = Field(default=None, gt=0)
    """Length of the masked part in units of the data, for rules with a length, e.g. hours of a forecast (default: given
    by mask_ratio)."""
    random: float = Field(default=0.0, ge=0, le=1)
    """Share of the masked tokens to replace by random tokens (default: 0; BERT: 0.1)."""
    coarse: float = Field(default=0.0, ge=0, le=1)
    """Share of the masked tokens that show averages over blocks of grid cells (default: 0)."""
    coarse_factor: int = Field(default=4, ge=2)
    """Number of grid cells along each side of the blocks of coarse tokens (default: 4)."""
    same: float = Field(default=0.0, ge=0, le=1)
    """Share of the masked tokens to leave unchanged (default: 0; BERT: 0.1)."""
    whole_words: bool = False
    """Mask whole words: the tokens of a word are hidden, replaced or kept together (default: false)."""
    every_stream: bool = False
    """Mask tokens of all streams, not only of `stream`; for `model.kind: multistream` (default: false)."""
    hide_stream: float = Field(default=0.0, ge=0, lt=1)
    """Probability of hiding all tokens of a masked stream in a sample, to predict them from the other streams (default:
    0). At least one stream with tokens stays visible in each sample."""

    @property
    def sends(self) -> tuple[str, ...]:
        return (PLACES,)

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        shares = self.random + self.coarse + self.same
        if shares > 1:
            message = (
                f"the sum objective.random + objective.same + objective.coarse is {shares:g}, but must be at most 1"
            )
            raise UserError(message, key="objective.random")
        names = self.predicted_streams(batch.streams)
        whole, places = dict[str, Array](), []
        if self.hide_stream:
            whole = draw_streams(batch, names, self.hide_stream, rng, "hide_stream")
        for name in names:
            # Streams of a sample draw different random numbers; a single stream draws the same numbers as ever.
            own = (
                rng if len(names) == 1 else SampleRandom(rng.seed, rng.epoch, mix(rng.words ^ key(name)).view(np.int64))
            )
            domain = Maskable.require(tokens[name], f"`objective.kind: {self.kind}`")
            stream = self._mask_stream(batch.streams[name], domain, whole.get(name), own)
            places.append(_places(stream, stream.columns["asked"]))
            batch = batch.with_columns(stream, name)
        return batch.with_columns(None, **{PLACES: places[0] if len(places) == 1 else _stack(places)})

    def predicted_streams(self, streams: Iterable[str]) -> tuple[str, ...]:
        names = tuple(streams)
        asked = self.asked_stream(names)
        return names if self.every_stream else (asked,)

    def _mask_stream(self, stream: Stream, domain: Maskable, whole: Array | None, rng: SampleRandom) -> Stream:
        """Mask a stream, and add its targets.

        domain  tokens of the stream
        whole   mask (B,) of samples in which all tokens of the stream are hidden, or None
        """
        if self.whole_words and "word" not in stream.columns:
            raise UserError(
                f"objective.whole_words needs parts of words, but `tokens.kind: {domain.kind}` has no column `word`",
                hint="Use subword tokens, or remove objective.whole_words.",
                key="objective.whole_words",
            )
        first = first_of(stream) if self.whole_words else np.arange(int(stream.lengths.sum()))
        may = self.candidates(domain, stream)
        named = bool(self.mask) or self.mask_length is not None
        asked = self._tokens_by_mask(domain, stream, may) if named else self._draw_tokens(stream, first, may, rng)
        fate = rng.uniform("fate", stream.lengths)[first]
        blurred = asked & (fate >= self.random) & (fate < self.random + self.coarse)
        hidden = asked & (fate >= self.random + self.coarse + self.same)
        if self.mask in domain.coarse_masks:
            blurred, hidden, fate = asked, np.zeros_like(asked), np.ones_like(fate)
        if whole is not None:
            every = whole[stream.sample]
            asked, hidden = np.where(every, True if may is None else may, asked), hidden | every
            blurred = blurred & ~every
            fate = np.where(every, 1.0, fate)
        targets = {PREFIX + column: stream.columns[column] for column in domain.hides}
        if self.random:
            stream = stream.with_columns(**domain.random_replacement(stream, asked & (fate < self.random), rng))
        if blurred.any():
            stream = stream.with_columns(**domain.coarse_values(stream, blurred, self.coarse_factor))
        stream = stream.with_columns(**domain.mask_out(stream, hidden))
        return stream.with_columns(hidden=hidden, asked=asked, **targets)

    def candidates(self, tokens: Maskable, stream: Stream) -> Array | None:
        """Mask (T,) of the tokens that may be masked; None for all."""
        return tokens.maskable(stream)

    def _tokens_by_mask(self, tokens: Maskable, stream: Stream, may: Array | None) -> Array:
        """Mask (T,) of the tokens to predict, from the mask function `objective.mask`."""
        one_of("objective.mask", self.mask, tokens.masks)
        if self.whole_words:
            raise UserError("objective.whole_words cannot be combined with objective.mask", key="objective.mask")
        asked = np.ones(int(stream.lengths.sum()), bool) if may is None else may.copy()
        rule, size = tokens.masks[self.mask], float(np.mean(self.mask_ratio))
        if self.mask_length is not None:
            if self.mask not in tokens.masks_by_length:
                known = ", ".join(tokens.masks_by_length)
                hint = f"Masks with a length: {known}." if known else "Set objective.mask_ratio."
                raise UserError(f"the mask {self.mask} has no length", hint=hint, key="objective.mask_length")
            rule, size = tokens.masks_by_length[self.mask], self.mask_length
        if asked.any():
            asked[asked] = rule(stream.keep(asked), size)
        return asked

    def _draw_tokens(self, stream: Stream, first: Array, may: Array | None, rng: SampleRandom) -> Array:
        """Mask (T,) of the tokens to predict: a random share of the words, at least one.

        first  (T,) index of the first token of the word of each token; without words, index of the token itself
        may    (T,) whether a token may be masked; None means all tokens
        """
        here = np.arange(len(first)) if may is None else np.flatnonzero(may)
        sample, drawn = stream.sample[here], rng.uniform("asked", stream.lengths)
        count = np.bincount(sample, minlength=len(stream))
        ratio: Any = self.mask_ratio
        if isinstance(ratio, tuple):
            ratio = ratio[0] + (ratio[1] - ratio[0]) * rng.uniform("share")
        wanted = np.maximum(1, np.round(ratio * count)).astype(np.int64)
        asked = np.zeros(len(first), bool)
        if not self.whole_words and len(here) and (table := sorted_rows(drawn[here], sample, count)) is not None:
            last = table[np.arange(len(count)), np.clip(wanted, 1, np.maximum(1, count)) - 1]
            asked[here] = drawn[here] <= last[sample]  # exactly the wanted number in each sample
            return asked
        order = np.lexsort((here, first[here], drawn[first[here]], sample))
        # For the words in random order: first tokens, lengths, and number of tokens in the words before.
        word, owner = first[here][order], sample[order]
        new = np.diff(word, prepend=-1) != 0
        begins = np.flatnonzero(new)
        long = np.diff(np.append(begins, len(word)))
        before = begins - (count.cumsum() - count)[owner[begins]]
        taken = (before == 0) | (before + long / 2 <= wanted[owner[begins]])
        asked[here[order]] = np.repeat(taken, long)
        return asked

    def count(self, batch: Batch) -> float:
        names = self.predicted_streams(batch.streams)
        return float(sum(batch.streams[name].columns["asked"].sum() for name in names))

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """Summed loss of the masked tokens; the readout skips all other tokens."""
        view, places = inputs.view(self.stream), inputs.samples[PLACES]
        encoded = model.encode(view)
        if places.dim() == 2:
            return self._stream_step(model, view, model.tokens(encoded), places, outputs)
        loss, found = encoded.x.new_zeros(()), Outputs()
        for name, own in zip(self.predicted_streams(inputs.streams), places.unbind(1)):
            more, parts = self._stream_step(model, inputs.view(name), model.stream_tokens(encoded, name), own, outputs)
            loss, found = loss + more, {key: found[key] + part if found else part for key, part in parts.items()}
        return loss, found

    def _stream_step(
        self, model: Any, view: StreamView, hidden: Tensor, places: Tensor, outputs: bool
    ) -> tuple[Tensor, Outputs]:
        """Loss of the masked tokens of a stream; see `step`."""
        readout, total = stream_part(model.readout, view.name), hidden.shape[:-1].numel()
        index, wanted = _rows(places, view, total), (places > 0).flatten()
        if not total:  # no tokens at all
            index, wanted = index[:0], wanted[:0]
        elif not outputs and hidden.device.type == "cpu" and not torch.compiler.is_compiling():
            index, wanted = index[wanted], wanted[wanted]  # shapes may vary here: skip the padding
        rows = hidden.flatten(0, -2).index_select(0, index)
        target = {name: column.index_select(0, index) for name, column in flat_targets(view, hidden).items()}
        if not outputs:
            return readout.total(rows, target, wanted), {}
        loss = readout.loss(rows, target).masked_fill(~wanted, 0)
        found = {"loss": loss, "count": wanted}
        if "token_accuracy" in self.chosen():
            found["correct"] = tokens_agree(readout.predict(rows), target) & wanted
        shape = (len(places), len(index) // max(1, len(places)))
        return loss.sum(), {name: part.view(shape).sum(1) for name, part in found.items()}


def first_of(stream: Stream) -> Array:
    """Index (T,) of the first token of the word of each token.

    A token without a word gets its own index.
    """
    word, here = stream.columns["word"], np.arange(int(stream.lengths.sum()))
    if not len(here):
        return here
    begins = (np.diff(word, prepend=-2) != 0) | (stream.position == 0) | (word < 0)
    return np.maximum.accumulate(np.where(begins, here, 0))


def _places(stream: Stream, asked: Array) -> Array:
    """Positions (B, K) of the masked tokens in their sample, from 1; 0 is padding."""
    sample, place = stream.sample[asked], stream.position[asked] + 1
    count = np.bincount(sample, minlength=len(stream))
    room = -(-int(count.max(initial=1)) // PLACES_MULTIPLE) * PLACES_MULTIPLE
    places = np.zeros((len(stream), room), np.int64)
    places[sample, np.arange(len(sample)) - np.repeat(count.cumsum() - count, count)] = place
    return places


def _stack(places: Sequence[Array]) -> Array:
    """Positions (B, S, K) of S streams, from the positions (B, K_s) of each stream."""
    most = max(one.shape[1] for one in places)
    return np.stack([np.pad(one, ((0, 0), (0, most - one.shape[1]))) for one in places], 1)


def _rows(places: Tensor, view: StreamView, total: int) -> Tensor:
    """Flat indices of the masked positions in the concatenated tokens of a view.

    Padding entries have no effect. They point at the tokens of their sample in turn: if all of them pointed at the
    first token, a GPU would add thousands of zero gradients to this token one after the other.
    """
    if isinstance(view.valid, Ragged):
        lengths = view.valid.lengths
        start = view.valid.ends - lengths
    else:
        wide = next(iter(view.columns.values())).shape[1]
        lengths = places.new_full((len(places),), wide) if view.valid is None else view.valid.sum(1)
        start = torch.arange(len(places), device=places.device) * wide
    turn = torch.arange(places.shape[1], device=places.device) % lengths.clamp(min=1)[:, None]
    return (start[:, None] + torch.where(places > 0, places - 1, turn)).clamp(max=total - 1).flatten()
