"""Simulated texts: copying memory and pronoun translation."""
