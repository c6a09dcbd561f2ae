"""Graphs of models, one file for each; what they are made of is in `nn`, what they read is in `tokens`."""
