"""The version of ingot."""

__version__ = "0.1.0"
