"""Simulated series: variable stars, supernovae, oscillators, transits, chirps."""
