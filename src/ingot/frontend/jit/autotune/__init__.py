"""Measuring: which of several strategies is quickest, and whether a compiled program beats eager at all.

In: callables that do the same. Out: a choice. What always holds: both sides run on the caller's own arguments.
"""
