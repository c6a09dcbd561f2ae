"""Runs exported as ONNX graphs."""
