"""Trace to trace: products, packed and frozen weights, epilogues, layouts.

In: a `Trace`. Out: a `Trace` with the same results, or the same trace.
"""
