"""Compiled modules: what a graph becomes, and how it is run.

In: a graph and a configuration, then tensors. Out: a module that any thread can execute, its results and its
statistics. What always holds: a plan gives what the graph's interpreter gives, natively or in Python.
"""
