"""Watch: record attention weights and hidden states, without hooks."""

from __future__ import annotations

from torch import Tensor


class Watch:
    """Record of attention weights and hidden states of a forward pass.

        watch = Watch()
        y = encoder(x, valid, watch=watch)
        watch.attention["blocks.2.attention"]      (B, H, N, M) weights, rows sum to one
        watch.hidden["blocks.2"]                   (B, N, D) output of block 2; "input" is the input of block 0
        watch.kernels["blocks.2.attention"]        the kernel that computed the output

    The weights are computed separately from the fast kernel, so a Watch does not change the output. With
    `kernel="reference"` the recorded weights are the tensors used for the output, and they have gradients.
    """

    def __init__(self, attention: bool = True, hidden: bool = True) -> None:
        self.wants_attention, self.wants_hidden = attention, hidden
        self.attention: dict[str, Tensor] = {}
        self.hidden: dict[str, Tensor] = {}
        self.kernels: dict[str, str] = {}
        self.prefix = ""

    def at(self, name: str) -> Watch:
        """Watch of an inner module: the same record, with the prefix `name` for all names."""
        below = Watch(self.wants_attention, self.wants_hidden)
        below.attention, below.hidden, below.kernels = self.attention, self.hidden, self.kernels
        below.prefix = self._full(name)
        return below

    def saw_attention(self, weights: Tensor, kernel: str, name: str = "") -> None:
        """Store attention weights (B, H, N, M) and the name of the kernel."""
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


def inner_watch(watch: Watch | None, name: str) -> Watch | None:
    """Watch for the inner module `name`: `watch.at(name)`, or None without a watch."""
    return None if watch is None else watch.at(name)
