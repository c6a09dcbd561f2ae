"""Figures: attention, curves, panels, and the style they share."""
