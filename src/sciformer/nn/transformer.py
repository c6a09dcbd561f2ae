"""Transformer trunks: Encoder, Decoder, and EncoderDecoder.

All trunks have the same call. Tokens are padded or packed; `valid` selects the layout:

    x (B, N, D)    valid (B, N), True where the token is real, or None
    x (T, D)       valid = Ragged(lengths): B sequences end to end

The result has the shape of x, with zeros where there is no token.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Unpack

import torch
from pydantic import Field
from torch import Tensor, nn

from ..errors import UserError
from .attention.cache import Cache
from .attention.linformer import compress_error
from .attention.masks import FULL, Causal, Documents, Full, Pattern, Sight, Window
from .attention.pair_bias import PairBias
from .blocks import Block, BlockArguments, block_norm
from .options import DepthOptions, HeadForm, PositionOptions, TokenForm
from .positions import Position, packed_places
from .ragged import Ragged, zero_padding
from .watch import Watch, inner_watch

Valid = Tensor | Ragged | None
EXAMPLES = {"position": "Rotary(head_dim) or Sinusoidal(dim)", "pattern": "Causal() or Window(128)"}


class TransformerArguments(BlockArguments, total=False):
    """Keyword arguments of Transformer, passed on by Decoder."""

    position: Position | None
    cross: bool
    memory_dim: int | None
    drop_path: float
    embedding_norm: bool
    last_norm: bool


class Transformer(nn.Module):
    """Transformer: positional encoding, `depth` blocks of width `dim`, and a norm.

    heads     number of attention heads
    position  positional encoding; None means no encoding, for a set of tokens
    pattern   attention pattern over positions in a sequence
    cross     whether every block also attends to a memory of width `memory_dim` (default: `dim`)
    drop_path rate of stochastic depth at the last block; it grows linearly with depth
    embedding_norm  whether tokens with their positions are normalised before the first block (BERT)
    last_norm       whether a norm follows the last block; only for norm_position pre
    options         options of Block (norm_position, norm, activation, mlp_ratio, dropout, extras, residual,
                    parallel_residual) and of Attention (kv_heads, head_dim, score, length, qk_norm, bias, epsilon,
                    kernel, compress, places, lead)

    Initial weights are normal with standard deviation 0.02, divided by sqrt(2 depth) for the output matrices of
    attention and MLP (GPT-2).
    """

    columns: tuple[str, ...] = ()
    """Token columns that `forward` takes as keyword arguments."""
    block: ClassVar[type[Block]] = Block
    """Class of the blocks."""

    def __init__(
        self,
        dim: int,
        depth: int,
        heads: int,
        *,
        position: Position | None = None,
        pattern: Pattern = FULL,
        cross: bool = False,
        memory_dim: int | None = None,
        drop_path: float = 0.0,
        embedding_norm: bool = False,
        last_norm: bool = True,
        **options: Unpack[BlockArguments],
    ) -> None:
        super().__init__()
        for name, given, kind in (("position", position, Position), ("pattern", pattern, Pattern)):
            if given is not None and not isinstance(given, kind):
                raise UserError(f"{name} must be a {kind.__name__}, for example {EXAMPLES[name]}, not {given!r}")
        self.dim, self.depth, self.heads, self.pattern = dim, depth, heads, pattern
        self.position = Position() if position is None else position
        self.adapt = nn.Linear(memory_dim, dim) if cross and memory_dim not in (None, dim) else nn.Identity()
        self.blocks = nn.ModuleList(
            self.block(dim, heads, cross=cross, drop_path=rate, **options) for rate in _rates(drop_path, depth)
        )
        pre = options.get("norm_position", "pre") == "pre"
        self.embedding_norm = block_norm(dim, options, embedding_norm)
        self.norm = block_norm(dim, options, pre and last_norm)
        self.cross = cross
        if options.get("compress") is not None and (cross or not isinstance(pattern, Full)):
            raise compress_error("a memory" if cross else f"the pattern {pattern!r}")
        head_dim = options.get("head_dim") or dim // heads
        self.position.fits(dim, heads, head_dim)
        if getattr(self.position, "spread", 1) > 1 and options.get("kv_heads") not in (None, heads):
            found = options["kv_heads"]
            wanted = f"kv_heads must be equal to heads ({heads})"
            raise UserError(f"{wanted} if Rotary has different periods for each head, but it is {found}")
        self.reset()

    @property
    def mixing(self) -> Position | None:
        """Position table of the Linformer projection; None without Linformer."""
        first = self.blocks[0].attention.compress if len(self.blocks) else None  # type: ignore[union-attr]
        return None if first is None else first.table  # type: ignore[union-attr, return-value]

    def reset(self, init: str = "normal") -> None:
        """Initialise the weights of the blocks again.

        normal   normal with standard deviation 0.02, smaller for output matrices of attention and MLP
        xavier   uniform with standard deviation sqrt(2 / (inputs + outputs))
        moco     xavier, with queries, keys and values as separate matrices (arXiv 2104.02057); the output matrices of
                 attention and MLP of block l are divided by sqrt(2 l)
        """
        for i, block in enumerate(self.blocks, 1):
            beside = getattr(block, "residual", True)
            redraw(block, init, (2 * (i if init == "moco" else self.depth)) ** 0.5 if beside else 1.0)

    def forward(
        self,
        x: Tensor,
        valid: Valid = None,
        *,
        at: Tensor | None = None,
        bias: Tensor | PairBias | None = None,
        memory: Tensor | None = None,
        memory_valid: Valid = None,
        cache: Cache | None = None,
        watch: Watch | None = None,
        condition: Tensor | None = None,
    ) -> Tensor:
        """Run the blocks over the tokens x (B, N, D) or packed (T, D).

        at      coordinates of the tokens: (N,) or (B, N) on a line, (N, A) or (B, N, A) with A axes; packed: (T,) or
                (T, A)
        bias    (B or 1, heads or 1, N, M) pair bias of the self-attention of every block; or a PairBias if packed
        memory  (B, M, C) padded or (S, C) packed tokens of width C for cross-attention, in the layout `memory_valid`;
                with a cache, needed only at the first step
        cache   keys and values of earlier tokens; x then has only the new tokens
        condition   (B, D) argument of blocks that depend on a condition (`adaptive`)
        """
        check_layout(x, valid, self.dim)
        ragged, mask = (valid, None) if isinstance(valid, Ragged) else (None, valid)
        real = mask
        if ragged is not None:
            if cache is not None:
                raise UserError("packed tokens cannot be used with a cache", hint="Pass padded tokens.")
            x, real = x[None], ragged.inside[None]
            at = packed_places(self.position, ragged, x.device) if at is None else at
        memory, memory_sight = self._memory(memory, memory_valid, ragged, cache)
        start, keys_valid = (0, mask) if cache is None else cache.begin(x, mask)
        mixed_at = None if self.mixing is None else self.mixing.locate(x, at, real, start)
        at = self.position.locate(x, at, real, start)
        pattern = self.pattern if ragged is None else Documents(ragged, self.pattern)
        bias = self._bias(x, mask, at, bias, cache, pattern)
        sight = Sight(pattern, keys_valid, bias, start, mixed_at)
        more = {} if condition is None else {"condition": condition}
        x = self.embedding_norm(zero_padding(self.position.embed(x, at), real))
        rotation = self.position.rotation(at, x.dtype)
        if watch is not None:
            watch.saw_hidden(x, "input")
        for i, block in enumerate(self.blocks):
            watched = inner_watch(watch, f"blocks.{i}")
            inner = watched if watched is not None and watched.wants_attention else None  # None: faster
            store = None if cache is None else cache.blocks[i]
            x = block(x, sight, memory, memory_sight, rotation=rotation, store=store, watch=inner, **more)
            if watched is not None:
                watched.saw_hidden(x)
        if cache is not None:
            cache.finish(x.shape[1])
        x = zero_padding(self.norm(x), real)
        return x if ragged is None else x[0]

    def _bias(
        self,
        x: Tensor,
        mask: Tensor | None,
        at: Tensor,
        bias: Tensor | PairBias | None,
        cache: Cache | None,
        pattern: Pattern,
    ) -> Tensor | PairBias | None:
        """Sum of the given pair bias and the bias of the positional encoding."""
        if bias is not None:
            batch, n, _ = x.shape
            keys = n if cache is None else cache.capacity or cache.length + n
            Sight(pattern, bias=bias).check(batch, self.heads, n, keys)
            if mask is not None and not isinstance(bias, PairBias):
                bias = bias.masked_fill(~mask[:, None, :, None], 0)  # the bias of padded queries has no effect
        leaning = None
        if self.position.inside:
            keys_at = at if cache is None else cache.place(at, x.shape[0])
            leaning = self.position.bias(at, keys_at)
        if leaning is None or bias is None:
            return bias if leaning is None else leaning
        return (bias.flat() if isinstance(bias, PairBias) else bias) + leaning

    def _memory(
        self, memory: Tensor | None, valid: Valid, queries: Ragged | None, cache: Cache | None
    ) -> tuple[Tensor | None, Sight | None]:
        """Memory in the width and layout of the queries, and the Sight of the memory."""
        if self.cross and cache is not None and cache.has_memory:  # given at the first step
            kept = cache.blocks[0].memory
            assert kept is not None
            return kept[0], Sight(valid=cache.memory_valid)
        if memory is None:
            if self.cross:
                raise UserError("`memory` is missing, but the trunk was made with cross=True", hint="Pass memory=...")
            return None, None
        if not self.cross:
            message = f"a memory of shape {tuple(memory.shape)} was passed, but the trunk was made without cross=True"
            raise UserError(message, hint="Make the trunk with cross=True.")
        check_layout(memory, valid, getattr(self.adapt, "in_features", self.dim))
        if isinstance(valid, Ragged) and queries is not None:
            return self.adapt(zero_padding(memory, valid.inside))[None], Sight(Documents(queries, keys=valid))
        if queries is not None:
            message = "the memory must be packed like the tokens, not padded"
            raise UserError(message, hint="Pass memory_valid=Ragged(lengths).")
        if isinstance(valid, Ragged):
            memory, valid = valid.pad(memory), valid.valid
        if cache is not None:
            cache.memory_valid = valid
        return self.adapt(zero_padding(memory, valid)), Sight(valid=valid)


def redraw(module: nn.Module, init: str, residual: float = 1.0) -> None:
    """Initialise the matrices of a block as described in `Transformer.reset`.

    Output matrices of attention and MLP are divided by `residual`, except for `xavier`.
    """
    for name, part in module.named_modules():
        if not isinstance(part, nn.Linear):
            continue
        writes = name.endswith(("out", "down"))
        if init == "normal":
            nn.init.normal_(part.weight, std=0.02 / residual if writes else 0.02)
        elif init == "moco" and name.endswith("qkv"):
            bound = (6 / (part.out_features // 3 + part.in_features)) ** 0.5
            nn.init.uniform_(part.weight, -bound, bound)
        else:
            nn.init.xavier_uniform_(part.weight)
            if writes and init == "moco":
                part.weight.data /= residual
        if part.bias is not None:
            nn.init.zeros_(part.bias)


def _rates(last: float, depth: int) -> list[float]:
    """Rates of stochastic depth, linear from 0 (first block) to `last` (last block)."""
    return [last * i / (depth - 1) for i in range(depth)] if depth > 1 else [last] * depth


class Encoder(Transformer):
    """Transformer with full attention, or with an attention `pattern`."""


class Decoder(Transformer):
    """Transformer with causal attention, and with cross-attention if `cross=True`."""

    def __init__(
        self,
        dim: int,
        depth: int,
        heads: int,
        *,
        pattern: Pattern | None = None,
        **options: Unpack[TransformerArguments],
    ) -> None:
        past = Causal() if pattern is None or isinstance(pattern, (Full, Causal)) else Causal() & pattern
        super().__init__(dim, depth, heads, pattern=past, **options)

    def cache(self, capacity: int | None = None) -> Cache:
        """Empty key-value cache for decoding: growing, or with a fixed `capacity`."""
        return Cache(self.depth, capacity)


class EncoderDecoder(nn.Module):
    """Encoder and decoder with attention to the encoded source (arXiv 1706.03762)."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_valid: Valid = None,
        target_valid: Valid = None,
        *,
        source_at: Tensor | None = None,
        target_at: Tensor | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """Decoder output (B, N, D) for the target, with attention to the source.

        To decode step by step, call `encoder` once and `decoder` with a cache.
        """
        memory = self.encoder(source, source_valid, at=source_at, watch=inner_watch(watch, "encoder"))
        where = {} if target_at is None else {"at": target_at}
        return self.decoder(
            target, target_valid, memory=memory, memory_valid=source_valid, watch=inner_watch(watch, "decoder"), **where
        )


def check_layout(x: Tensor, valid: Valid, dim: int | None = None) -> None:
    """Check that tokens have the layout of `valid` (padded or packed) and width `dim`."""
    if isinstance(valid, Ragged):
        if x.dim() != 2 or x.shape[0] != valid.total:
            raise UserError(
                f"packed tokens with the layout {valid} must have shape ({valid.total}, D), not {tuple(x.shape)}"
            )
    elif x.dim() != 3:
        raise UserError(
            f"tokens must have shape (B, N, D), not {tuple(x.shape)}", hint="Pass packed tokens with Ragged(lengths)."
        )
    elif valid is not None and (valid.shape != x.shape[:2] or valid.dtype != torch.bool):
        raise UserError(
            f"`valid` must be boolean of shape {tuple(x.shape[:2])}, True where the token is real, "
            f"not {valid.dtype} of shape {tuple(valid.shape)}"
        )
    if dim is not None and x.shape[-1] != dim:
        raise UserError(f"tokens must have width {dim}, not {x.shape[-1]} (shape {tuple(x.shape)})")


# Recipe options


class AttentionTrunkOptions(DepthOptions, PositionOptions):
    """Base class of the options of trunks with attention in every block."""

    choices: ClassVar[dict[str, str]] = {"position": "position"}

    heads: int = Field(default=4, ge=1, le=1 << 16)
    """Number of attention heads (default: 4)."""
    kv_heads: int | None = Field(default=None, ge=1)
    """Number of heads of keys and values (default: the value of heads). A smaller number gives grouped-query attention;
    1 gives multi-query attention."""
    head_dim: int | None = Field(default=None, ge=1, le=1 << 16)
    """Width of a head (default: dim / heads)."""
    norm: Literal["layer", "rms", "none"] = "layer"
    """Norm of the blocks (default: layer). layer: LayerNorm; rms: RMSNorm; none: no norm."""
    norm_epsilon: float | None = Field(default=None, gt=0, le=1)
    """Epsilon of the norms (default: 1e-5 for layer, 1e-6 for rms)."""
    norm_position: Literal["pre", "post"] = "pre"
    """Position of the norms in a block (default: pre). pre: before attention and MLP, as in GPT-2; post: after each
    residual sum, as in the transformer of 2017."""
    embedding_norm: bool = False
    """Add a norm after the positional encoding, before the first block, as in BERT (default: false)."""
    last_norm: bool = True
    """Add a norm after the last block, if norm_position is pre (default: true)."""
    qk_norm: Literal["none", "layer", "rms"] = "none"
    """Norm of queries and keys: none, layer or rms (default: none)."""
    bias: bool = True
    """Use biases in linear layers and norms (default: true)."""
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout rate of attention weights (default: the value of dropout)."""
    init: Literal["normal", "xavier", "moco"] = "normal"
    """Initial weights (default: normal). normal: standard deviation 0.02 (GPT-2); xavier: Xavier uniform (transformer
    of 2017); moco: Xavier uniform, with smaller output matrices in later blocks (MoCo v3). xavier and moco are also
    used for class attention, and moco for the heads."""
    window: int | None = Field(default=None, ge=0)
    """Attention window: number of tokens on each side that a token attends to (default: all tokens)."""
    position: str = "auto"
    """Positional encoding (default: auto). auto: learned if the number of positions is fixed, else sinusoidal;
    unpaired: sinusoidal with a different frequency for each channel (ASTROMER); modulation: scale and shift by Fourier
    series (TimeModAttn)."""

    def attention_options(self, form: TokenForm) -> dict[str, Any]:
        """Keyword arguments of a trunk with attention, without width, depth and heads."""
        if self.head_dim is None and self.dim % self.heads:
            message = f"model.dim ({self.dim}) is not a multiple of model.heads ({self.heads})"
            raise UserError(message, key="model.heads")
        heads = HeadForm(self.heads, self.kv_heads, self.head_dim or self.dim // self.heads)
        names = ("kv_heads", "head_dim", "norm", "embedding_norm", "last_norm", "norm_position", "qk_norm", "bias")
        return {
            **{name: getattr(self, name) for name in (*names, "dropout", "attention_dropout")},
            "position": self.build_position(form, self.dim, heads),
            "pattern": FULL if self.window is None else Window(self.window),
            "epsilon": self.norm_epsilon,
            "turn_values": self.turns_values,
        }


class TransformerOptions(AttentionTrunkOptions):
    """`trunk: transformer`: attention and MLP in each block."""

    can_be_causal: ClassVar[bool] = True
    takes_class_token: ClassVar[bool] = True

    mlp_ratio: float = Field(default=4.0, gt=0, le=128)
    """Width of the hidden layer of the MLP divided by dim (default: 4)."""
    activation: Literal["gelu", "gelu_tanh", "relu", "silu", "tanh", "swiglu"] = "gelu"
    """Activation of the MLP (default: gelu). gelu_tanh is the approximation of GELU in GPT-2."""
    hidden_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout rate inside the MLP (default: the value of dropout)."""
    drop_path: float = Field(default=0.0, ge=0, lt=1)
    """Rate of stochastic depth at the last block; it grows linearly with depth (default: 0)."""
    residual: bool = True
    """Add residual connections around attention and MLP (default: true). ASTROMER 1 has no residual connections."""
    parallel_residual: bool = False
    """Compute attention and MLP of a block from the same tokens, as in GPT-NeoX (default: false). Needs norm_position
    pre."""
    extras: tuple[Literal["head_scale", "output_scale", "attention_norm", "hidden_norm", "residual_scale"], ...] = ()
    """Extra parts of a block from NormFormer and Particle Transformer (default: no extra parts). head_scale: a learned
    scale of each head before the output layer of attention; output_scale (Particle Transformer): a learned scale of
    each of `heads` equal parts of the output of this layer; attention_norm: a norm after attention; hidden_norm: a norm
    inside the MLP; residual_scale: a learned scale of the residual of the MLP."""
    attention: Literal["full", "factored"] = "full"
    """Attention weights (default: full). full: from queries and keys; factored: from the difference of the positions
    alone, equal for all samples (arXiv 2211.05504, here with a softmax). factored needs `position: relative`."""
    compress: int | None = Field(default=None, ge=1)
    """Number of learned mixtures in place of the keys and values, as in Linformer (default: no mixtures)."""

    def block_options(self) -> dict[str, Any]:
        """Keyword arguments of this trunk's blocks, without dropout."""
        names = ("kv_heads", "head_dim", "mlp_ratio", "activation", "norm", "norm_position", "residual", "qk_norm")
        return {name: getattr(self, name) for name in (*names, "bias", "extras")} | {"epsilon": self.norm_epsilon}

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> Transformer:
        return self.make_transformer(Decoder if causal else Encoder, form, memory_dim)

    def make_transformer(self, trunk: type[Transformer], form: TokenForm, memory_dim: int | None = None) -> Transformer:
        """Transformer of a class, with the options of this section."""
        options = self.attention_options(form)
        if self.compress is not None:
            if form.grid_shape is None:
                found = f"this number is not fixed for `tokens.kind: {form.kind}`"
                message = f"model.compress needs a fixed number of positions, but {found}"
                raise UserError(message, key="model.compress")
            options |= {"compress": self.compress, "places": form.grid_shape, "lead": form.leading}
        if self.attention == "factored":
            options["content"] = False
            wrong = [name for name in ("kv_heads", "compress") if getattr(self, name) is not None]
            wrong += ["qk_norm"] if self.qk_norm != "none" else []
            if wrong or self.position != "relative":
                found = f"model.{wrong[0]}" if wrong else f"`model.position: {self.position}`"
                hint = f"Remove {found}." if wrong else "Use model.position: relative."
                message = f"`model.attention: factored` cannot be used with {found}"
                raise UserError(message, hint=hint, key=f"model.{wrong[0]}" if wrong else "model.position")
            if memory_dim is not None:
                message = "`model.attention: factored` cannot be used in a decoder that attends to a source"
                raise UserError(message, hint="Use model.attention: full.", key="model.attention")
        names = ("drop_path", "mlp_ratio", "activation", "extras", "residual", "parallel_residual", "hidden_dropout")
        options |= {name: getattr(self, name) for name in names}
        made = trunk(self.dim, self.depth, self.heads, cross=memory_dim is not None, memory_dim=memory_dim, **options)
        if self.init != "normal":
            made.reset(self.init)
        return made
