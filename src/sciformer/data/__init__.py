"""From files to batches: sources, splits, tokenised samples, their order and their randomness."""
