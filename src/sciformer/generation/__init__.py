"""Sequences written token by token: sampling, beam search, translation."""
