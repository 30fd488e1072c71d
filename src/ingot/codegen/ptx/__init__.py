"""PTX, the assembly language of NVIDIA's GPUs, from nests of loops, by way of LLVM.

In order of reading: `target` (what code is made for, and LLVM making it), `kernels` (nests as functions of a grid; with
`accuracy` and `shorter_functions` for what they compute), `emission` (what one thread does; with `place` and
`intrinsics`), `rows` (reductions; with `teams`, `columns` and `workspace` for who combines what), `tiles` (transposes).
"""
