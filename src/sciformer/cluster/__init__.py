"""Clusters: torchrun, job files, states of runs, and shards of predictions."""
