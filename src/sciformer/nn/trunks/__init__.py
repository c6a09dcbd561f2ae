"""Trunks besides Transformer: recurrent, convolutional, and for point clouds."""
