"""Calls of compiled fusions, answered natively: arguments are compared with records, and the one that fits runs.

In: records of guards, kernels and results. Out: a builtin function, and routines that other native code calls. What
always holds: a call that no record fits goes to Python, arguments and all; native code raises nothing.
"""
