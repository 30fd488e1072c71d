"""The comparison of single operations as real programs use them: eager PyTorch, torch.compile and ingot.jit, CPU.

`python -m benchmarks.operations` runs it, `python -m benchmarks.operations --help` says how. In order of reading: the
cases of `geometry`, `images`, `networks` and `lookups`, `contests` (who computes them, compared and measured), and
`report`. Rows, rounds and comparisons are those of benchmarks/capture.
"""
