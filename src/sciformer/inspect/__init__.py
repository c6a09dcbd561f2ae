"""Looking at what a model does: attention as pictures."""

from .plots.attention import draw_heads, draw_pattern, draw_weights

__all__ = ["draw_heads", "draw_pattern", "draw_weights"]
