"""Scenes of coloured shapes: captions, placement, rendering, reading of pictures."""
