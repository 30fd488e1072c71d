"""Kernels on NVIDIA devices: the driver, loaded modules, and launching."""
