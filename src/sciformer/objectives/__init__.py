"""Objectives: training targets, losses and scores."""
