"""The memory of results on the CPU: a pool that gives out again what dead results leave.

In: a number of bytes, or a shape and a dtype. Out: a block, or a tensor on one. What always holds: any thread may give
a block back, with or without the GIL, even after Python itself has been taken down.
"""
