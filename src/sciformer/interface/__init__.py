"""Interface of Python: the functions of `import sciformer as sf`, and HTML for notebooks."""
