"""Trace to trace: the passes that `trace_passes.TRACE_PASSES` lists, and what they choose between.

In: a `Trace`. Out: a `Trace` with the same results, or the same trace. What always holds: passes change traces by one
rewriter (trace_rewriting.py), and each can be switched off.
"""
