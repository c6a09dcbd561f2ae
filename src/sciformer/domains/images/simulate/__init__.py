"""Simulated images: galaxies, lenses, shapes with textures, scenes with captions."""
