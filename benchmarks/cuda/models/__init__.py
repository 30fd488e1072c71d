"""Whole models on an NVIDIA GPU: eager PyTorch, torch.compile and ingot.jit, with and without CUDA graphs.

`python -m benchmarks.cuda --models` runs it, `--help` after that says how. In order of reading: `networks` (the
models), `contests` (who runs them, checked before anything is measured), `profiles` (which kernels they spend their
time in) and `report`. The rest is shared with the comparison of single cases.
"""
