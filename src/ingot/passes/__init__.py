"""Rewrites of graphs, one pass per file, and the pipeline that orders them.

In: a graph. Out: a graph with the same inputs and outputs that is cheaper to run, and a report of each pass. What
always holds: every bit of every result stays as it was, and so do types and assumptions about sizes.
"""
