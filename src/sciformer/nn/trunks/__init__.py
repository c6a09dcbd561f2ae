"""Trunks other than Transformer, with the same call: recurrent, convolutional, ..."""
