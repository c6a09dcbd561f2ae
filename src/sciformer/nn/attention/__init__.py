"""Attention: scores, masks, pair biases, key-value caches, and the kernels that compute it."""
