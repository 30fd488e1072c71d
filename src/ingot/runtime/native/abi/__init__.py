"""How Python's and torch's objects lie in memory, and how torch's switches are read, without a header of either.

In: objects of this process whose contents are known. Out: where native routines find what they read; None where
anything is not as expected. What always holds: a place that was not confirmed in this process is not read.
"""
