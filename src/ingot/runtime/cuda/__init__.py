"""Kernels on NVIDIA devices: the driver, loaded modules, and launching.

In: kernels and tensors of one device. Out: new tensors from torch's allocator, written on torch's current stream. What
always holds: no part of the CUDA toolkit is needed but for `disassembly`, and the driver is loaded at first use.
"""
