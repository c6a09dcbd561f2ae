"""Import of models and data files of weaver."""
