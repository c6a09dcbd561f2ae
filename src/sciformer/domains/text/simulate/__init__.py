"""Simulated texts: a symbol to remember, a pronoun to resolve."""
