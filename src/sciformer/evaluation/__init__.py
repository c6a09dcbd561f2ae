"""Evaluation of trained models: scores, predictions, embeddings, calibration."""
