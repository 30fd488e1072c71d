"""The comparison on an NVIDIA GPU: eager PyTorch, torch.compile and ingot.jit on one device, in one process.

`python -m benchmarks.cuda` runs it, `python -m benchmarks.cuda --help` says how. In order of reading: `cases` (what is
computed), `clocks` (time on the device and time on the host), `contests` (the compilers that are compared, checked
before anything is measured), `groups`, `targets` and `report`. Everything else is shared with the comparison on the
CPU.
"""
