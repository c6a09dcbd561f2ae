"""Looking into a forward pass: attention weights and hidden states as values, without hooks."""

from __future__ import annotations

from torch import Tensor


class Watch:
    """What a forward pass shows when it is handed one of these.

        watch = Watch()
        y = encoder(x, valid, watch=watch)
        watch.attention["blocks.2.attention"]      (B, H, N, M) weights, rows sum to one
        watch.hidden["blocks.2"]                   (B, N, D) what left block 2; "input" is what entered the first
        watch.kernels["blocks.2.attention"]        the kernel that computed the output

    The weights are computed beside the fast kernel, never instead of it, so watching does not change the output.
    With `kernel="reference"` they are the very tensors the output was made from, and gradients can be asked of them.
    """

    def __init__(self, attention: bool = True, hidden: bool = True) -> None:
        self.wants_attention, self.wants_hidden = attention, hidden
        self.attention: dict[str, Tensor] = {}
        self.hidden: dict[str, Tensor] = {}
        self.kernels: dict[str, str] = {}
        self.prefix = ""

    def at(self, name: str) -> Watch:
        """The same record, one level further down: names it stores begin with `name`."""
        below = Watch(self.wants_attention, self.wants_hidden)
        below.attention, below.hidden, below.kernels = self.attention, self.hidden, self.kernels
        below.prefix = self._full(name)
        return below

    def saw_attention(self, weights: Tensor, kernel: str, name: str = "") -> None:
        """Store attention weights (B, H, N, M) and the kernel that ran beside them."""
        name = self._full(name) or "attention"
        self.attention[name] = weights
        self.kernels[name] = kernel

    def saw_hidden(self, x: Tensor, name: str = "") -> None:
        """Store a hidden state (B, N, D)."""
        if self.wants_hidden:
            self.hidden[self._full(name)] = x

    def _full(self, name: str) -> str:
        return ".".join(part for part in (self.prefix, name) if part)

    def __repr__(self) -> str:
        return f"Watch(attention: {', '.join(self.attention) or '-'}; hidden: {', '.join(self.hidden) or '-'})"


def look(watch: Watch | None, name: str) -> Watch | None:
    """`watch.at(name)`, or None where nobody watches."""
    return None if watch is None else watch.at(name)
