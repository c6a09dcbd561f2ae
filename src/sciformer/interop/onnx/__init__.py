"""Export of runs as ONNX graphs."""
