"""Nests of loops as machine code for the CPU, by way of LLVM in this process.

In: a nest and a schedule. Out: functions at addresses, which take an array of words. What always holds: an element's
bits do not depend on its position, and results not on the number of threads.

In order of reading: `nests` (nests as functions; with `frame` for what code knows at a place, and `common` for what all
kernels call), `vector_loops` (loops in vectors), `accumulation` (reductions), `products` (of matrices, and attention).
"""
