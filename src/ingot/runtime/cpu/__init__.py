"""Kernels on the CPU: machine code in this process, made by LLVM, run by the threads that torch itself uses.

In: kernels and tensors on the CPU. Out: new row-major tensors. What always holds: results do not depend on the number
of threads, and equal programs under equal schedules share their machine code. Masks of dropout are drawn here too.
"""
