"""Rivals of the transformer with the same call: recurrent, convolutional, over sets and point clouds."""
