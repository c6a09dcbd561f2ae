"""Inspection of trained models: attention maps, attributions, reports."""

from .plots.attention import draw_heads, draw_pattern, draw_weights

__all__ = ["draw_heads", "draw_pattern", "draw_weights"]
