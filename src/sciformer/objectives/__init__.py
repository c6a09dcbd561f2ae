"""What is asked of a model: one file for each question."""
