"""Models and data files of weaver."""
