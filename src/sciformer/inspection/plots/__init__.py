"""Figures: attention matrices, curves, panels, and their common style."""
