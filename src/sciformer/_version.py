"""The version, alone in a file so that building the package imports nothing."""

__version__ = "0.2.0"
