"""Compiled modules: what a graph becomes, and how it is run."""
