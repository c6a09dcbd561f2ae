"""Recipes compared: labels x folds x seeds x grid, one table with mean and spread, and a verdict."""
