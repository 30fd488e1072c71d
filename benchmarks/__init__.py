"""The published comparison: eager PyTorch, torch.compile and ingot, side by side in one process.

`python -m benchmarks` runs it, `python -m benchmarks --help` says how. In order of reading: `cases` (what is computed),
`measuring` (how time is taken), `memory_speed` (what the machine can do at most), `contestants` (who computes it),
`models` and `model_contests` (the same for whole models), `groups` (which cases meet which contestants), `results`,
`targets`, `report` and `pictures`.

`benchmarks.capture` compares how calls reach the kernels, `benchmarks.cuda` is the comparison on a GPU.
"""
