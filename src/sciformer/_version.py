"""Version of the package, in its own file so that the build imports nothing else."""

__version__ = "0.2.0"
