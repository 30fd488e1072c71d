"""PTX, the assembly language of NVIDIA's GPUs, from nests of loops, by way of LLVM.

In order of reading: `target` (what code is made for, and LLVM making it), `kernels` (nests as functions of a grid).
"""
