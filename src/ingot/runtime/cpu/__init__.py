"""Kernels on the CPU: machine code in this process, made by LLVM, run by the threads that torch itself uses."""
