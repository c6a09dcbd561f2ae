"""Simulated jets of the ten classes of JetClass."""
