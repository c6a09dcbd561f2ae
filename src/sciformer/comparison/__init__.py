"""Comparison of recipes over seeds, grids, numbers of labels and folds."""
