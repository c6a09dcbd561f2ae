"""Simulated images: galaxies, gravitational lenses, shapes with textures."""
