"""Attention: scores, masks, pair biases, key-value caches and kernels."""
