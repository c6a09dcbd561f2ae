"""Python interface: the functions of `import sciformer as sf`, and HTML for notebooks."""
