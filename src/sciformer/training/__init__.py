"""Training: the loop, its updates, checkpoints, ranks and progress."""
