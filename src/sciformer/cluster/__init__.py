"""Clusters: torchrun, job files, states of runs, and predictions in shards."""
