"""Trained models used on samples: scores, predictions in files, embeddings, calibration."""
