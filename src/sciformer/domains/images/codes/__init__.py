"""Codes: a picture as a grid of words from a learned codebook."""
