"""Clusters: torchrun, job files of schedulers, state of runs, shards of predictions."""
