"""Kernels as loops over elements, before they are machine code."""
