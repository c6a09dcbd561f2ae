"""Clusters: torchrun, job files of schedulers, the state of a run, predictions in shards."""
