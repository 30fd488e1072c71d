"""Code generation: nests of loops as LLVM, and LLVM as machine code.

In: a nest and a schedule. Out: machine code for the CPU (`cpu`), or PTX for NVIDIA's GPUs (`ptx`). What always holds:
what both share, instructions, functions and LLVM itself, is in `llvm`, which depends on neither.
"""
