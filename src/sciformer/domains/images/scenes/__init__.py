"""Scenes of coloured shapes: captions, placement, rendering, reading pictures back."""
