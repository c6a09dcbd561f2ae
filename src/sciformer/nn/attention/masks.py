"""Attention masks: patterns over positions, padding masks and biases.

A pattern is a rule over two positions: query i may see key j where `allows(i, j)` is True. Rules combine with `&` and
`|`. A kernel uses the dense mask of a rule or its attention distance, or evaluates the rule block by block.

    Causal() & Window(128)        the last 128 tokens
    Window(64) | Global(1)        a window, and a class token that sees all tokens and is seen by all
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from ...errors import UserError
from ..ragged import Ragged
from .pair_bias import PairBias

AttentionDistance = tuple[float, float]
Made = TypeVar("Made")


class Pattern:
    """Abstract attention mask: a rule for query position i and key position j.

    A `uniform` rule depends only on j - i.
    """

    uniform: bool = True

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        """True where the query at position i may see the key at position j (broadcast)."""
        raise NotImplementedError

    def reach(self) -> AttentionDistance:
        """Largest distance from a query to a visible key, to the left and to the right."""
        return math.inf, math.inf

    def mask(self, n: int, m: int, start: int | Tensor = 0, device: torch.device | None = None) -> Tensor:
        """Mask (n, m) of queries at positions start, start + 1, ... and keys at 0, 1, ..."""
        i = torch.arange(n, device=device)[:, None] + start
        return self.allows(i, torch.arange(m, device=device)[None, :])

    def __repr__(self) -> str:
        """Python expression of the pattern: Causal() & Window(128)."""
        given = [getattr(self, name) for name in getattr(self, "__dataclass_fields__", ())]
        return f"{type(self).__name__}({', '.join(repr(value) for value in given if value is not None)})"

    def __and__(self, other: Pattern) -> Pattern:
        return Both(self, other)

    def __or__(self, other: Pattern) -> Pattern:
        return Either(self, other)


@dataclass(frozen=True, repr=False)
class Full(Pattern):
    """Full attention: every token sees every token."""

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones_like(i - j, dtype=torch.bool)


@dataclass(frozen=True, repr=False)
class Causal(Pattern):
    """Causal mask: j <= i for query i and key j."""

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return j <= i

    def reach(self) -> AttentionDistance:
        return math.inf, 0


@dataclass(frozen=True, repr=False)
class Window(Pattern):
    """Sliding window: i - left <= j <= i + right (default: right = left)."""

    left: int
    right: int | None = None

    def __post_init__(self) -> None:
        if self.left < 0 or (self.right is not None and self.right < 0):
            raise UserError(f"a window must be 0 or more tokens wide on each side, not {self.left} and {self.right}")

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        left, right = self.reach()
        return (i - j <= left) & (j - i <= right)

    def reach(self) -> AttentionDistance:
        return self.left, self.left if self.right is None else self.right


@dataclass(frozen=True, repr=False)
class Strided(Pattern):
    """Strided attention (arXiv 1904.10509).

    |i - j| < stride or (i - j) mod stride = 0
    """

    stride: int

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise UserError(f"the stride must be 1 or more, not {self.stride}")

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        distance = (i - j).abs()
        return (distance < self.stride) | (distance % self.stride == 0)


@dataclass(frozen=True, repr=False)
class Global(Pattern):
    """Global attention of the first `count` tokens (arXiv 2004.05150): i or j < count."""

    count: int
    uniform = False

    def __post_init__(self) -> None:
        if self.count < 0:
            raise UserError(f"the number of global tokens must be 0 or more, not {self.count}")

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return (i < self.count) | (j < self.count)


@dataclass(frozen=True, repr=False)
class Combination(Pattern):
    """Abstract combination of two patterns."""

    first: Pattern
    second: Pattern
    sign: ClassVar[str]
    combine: ClassVar[Any]
    farther: ClassVar[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "uniform", self.first.uniform and self.second.uniform)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.combine(self.first.allows(i, j), self.second.allows(i, j))

    def reach(self) -> AttentionDistance:
        (a, b), (c, d) = self.first.reach(), self.second.reach()
        return self.farther(a, c), self.farther(b, d)

    def __repr__(self) -> str:
        parts = (f"({part!r})" if isinstance(part, Combination) else repr(part) for part in (self.first, self.second))
        return self.sign.join(parts)


class Both(Combination):
    """Intersection of two patterns: pairs allowed by both."""

    sign, combine, farther = " & ", operator.and_, min


class Either(Combination):
    """Union of two patterns: pairs allowed by at least one pattern."""

    sign, combine, farther = " | ", operator.or_, max


@dataclass(frozen=True, eq=False, repr=False)
class Documents(Pattern):
    """Block-diagonal mask of packed sequences, with a rule `within` each sequence.

    Here i and j are indices of packed tokens. A query sees only keys of its own sequence, where `within` allows them.
    For cross-attention, `keys` is the layout of the keys.
    """

    queries: Ragged
    within: Pattern = field(default_factory=Full)
    keys: Ragged | None = None
    uniform = False

    def __post_init__(self) -> None:
        if self.keys is not None and len(self.keys) != len(self.queries):
            found = f"not {len(self.queries)} sequences of queries and {len(self.keys)} sequences of keys"
            raise UserError(f"queries and keys must have the same number of sequences, {found}")

    @property
    def memory(self) -> Ragged:
        """Layout of the keys (default: the layout of the queries)."""
        return self.queries if self.keys is None else self.keys

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        queries, keys = self.queries, self.memory
        same = (queries.sample[i] == keys.sample[j]) & queries.inside[i]
        return same & self.within.allows(queries.position[i], keys.position[j])


FULL = Full()


@lru_cache(maxsize=32)
def _small_mask(pattern: Pattern, n: int, m: int, start: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a mask made in inference mode must also work in training
        return pattern.mask(n, m, start, device)


class Sight:
    """Visible keys of one attention, and the bias of its scores.

    pattern   rule over positions; None means that every key is visible
    valid     (B, M) True where the key is real; None means that all keys are real
    bias      (B or 1, H or 1, N, M) added to the scores, or a PairBias of packed sequences; gradients reach the bias
    start     position of the first query; more than 0 if a cache has earlier keys
    at        (B or 1, M, A) coordinates of the keys on A axes, for attention with `compress`

    A Sight is made for one forward pass. All blocks of a stack share it, so a kernel prepares its mask only once
    (`once`). Do not change a Sight after its first use.
    """

    def __init__(
        self,
        pattern: Pattern | None = None,
        valid: Tensor | None = None,
        bias: Tensor | PairBias | None = None,
        start: int | Tensor = 0,
        at: Tensor | None = None,
    ) -> None:
        self.pattern = FULL if pattern is None else pattern
        self.valid, self.bias, self.start, self.at = valid, bias, start, at
        self.prepared: dict[Any, Any] = {}

    @property
    def plain(self) -> bool:
        """Whether attention is full or causal from position 0, without padding or bias."""
        begins = isinstance(self.start, int) and self.start == 0
        return self.valid is None and self.bias is None and begins and isinstance(self.pattern, (Full, Causal))

    @property
    def packed(self) -> Ragged | None:
        """Layout of the queries if they are packed; None if they are padded."""
        return self.pattern.queries if isinstance(self.pattern, Documents) else None

    @property
    def dense_bias(self) -> Tensor | None:
        """Bias as a dense tensor (B or 1, H or 1, N, M), or None."""
        bias = self.bias
        return self.once("dense bias", bias.flat) if isinstance(bias, PairBias) else bias

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """Value of `make()`, cached under `key`; not cached while torch.compile traces."""
        if torch.compiler.is_compiling():  # sizes in a key would cause a recompilation for every length
            return make()
        if key not in self.prepared:
            self.prepared[key] = make()
        return self.prepared[key]

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        """Check the shapes of mask and bias for `batch` samples, n queries and m keys."""
        if self.valid is not None and (self.valid.dtype != torch.bool or self.valid.shape != (batch, m)):
            found = f"{self.valid.dtype} of shape {tuple(self.valid.shape)}"
            raise UserError(f"`valid` must be boolean of shape {(batch, m)}, True where the key is real, not {found}")
        if isinstance(self.bias, PairBias):
            packed = isinstance(self.pattern, Documents) and self.pattern.queries.total == self.bias.ragged.total
            if not packed:
                wanted = f"the pattern Documents over the same packed tokens ({self.bias.ragged})"
                raise UserError(f"a PairBias can be used only with {wanted}, not with {type(self.pattern).__name__}")
            if self.bias.heads not in (1, heads):
                raise UserError(f"the PairBias has {self.bias.heads} heads, but the attention has {heads} heads")
        elif self.bias is not None:
            b, h, *pair = self.bias.shape if self.bias.dim() == 4 else (0, 0, 0, 0)
            if not self.bias.is_floating_point() or pair != [n, m] or b not in (1, batch) or h not in (1, heads):
                found = f"{self.bias.dtype} of shape {tuple(self.bias.shape)}"
                wanted = f"{(batch, heads, n, m)} (batch or 1, heads or 1, queries, keys)"
                raise UserError(f"`bias` must be floating-point of shape {wanted}, not {found}")
        if isinstance(self.pattern, Documents):
            queries, keys = self.pattern.queries.total, self.pattern.memory.total
            if (batch, n, m) != (1, queries, keys):
                found = f"a batch of {batch} with {n} queries and {m} keys"
                wanted = f"a batch of 1 with {queries} queries and {keys} keys"
                raise UserError(f"the pattern Documents was made for {wanted}, not for {found}")

    def simplified(self, n: int, m: int) -> Pattern:
        """The pattern, or FULL if all n queries can see all m keys."""
        start = self.start
        if isinstance(self.pattern, (Causal, Window)) and isinstance(start, int):
            left, right = self.pattern.reach()
            if start + right >= m - 1 and start + n - 1 - left <= 0:
                return FULL
        return self.pattern

    def allowed(self, n: int, m: int, device: torch.device) -> Tensor | None:
        """Mask of allowed pairs, broadcastable to (B, 1, N, M); None if all are allowed."""
        return self.once(("allowed", n, m), lambda: self._allowed(n, m, device))

    def _allowed(self, n: int, m: int, device: torch.device) -> Tensor | None:
        pattern, mask = self.simplified(n, m), None
        if not isinstance(pattern, Full):
            # A mask made under torch.compile or a fake mode must not be cached.
            quiet = not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() == 0
            small = isinstance(self.start, int) and n * m <= 1 << 22
            if quiet and small and not isinstance(pattern, Documents):
                mask = _small_mask(pattern, n, m, self.start, device)
            else:
                mask = pattern.mask(n, m, self.start, device)
            mask = mask[None, None]
        if self.valid is not None:
            keys = self.valid[:, None, None, :]
            mask = keys if mask is None else mask & keys
        return mask
