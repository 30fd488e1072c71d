"""PyTorch's own database of operators through `ingot.jit`: every sample input, compared with eager PyTorch.

`python -m tests.opinfo` runs it, `python -m tests.opinfo --help` says how. In order of reading: `database` (operators,
their variants and samples), `observing` (what a call leaves behind), `comparing` (when two calls count as equal),
`trials` (one operator with one dtype), `workers` (trials in processes of their own, so that a crash has a name) and
`report`. `test_chosen_operators` is the part that runs with the tests.
"""
