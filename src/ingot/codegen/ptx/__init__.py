"""PTX, the assembly language of NVIDIA's GPUs, from nests of loops, by way of LLVM.

In: a nest, a schedule and a generation of GPUs. Out: the text of a PTX module with one entry for each launch. What
always holds: values are combined in an order that the schedule fixes, without atomic additions.

In order of reading: `target` (what code is made for, and LLVM making it), `kernels` (nests as functions of a grid; with
`accuracy` and `fused_approximations` for what they compute), `emission` (what one thread does; with `place` and
`intrinsics`), `rows` (reductions; with `thread_groups`, `columns` and `workspace` for which threads combine what),
`tiles` (transposes).
"""
