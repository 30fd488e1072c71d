"""The comparison of training: steps of eager PyTorch, torch.compile and ingot.jit, in one process.

`python -m benchmarks.training` runs it, `python -m benchmarks.training --help` says how. The sections: `steps` (whole
steps of models) and `optimizers` (AdamW alone). In order of reading: `cases` (what is trained), `steps` and
`optimizers` (who trains it, compared and measured), and `report`. Rows, rounds and comparisons are those of
benchmarks/capture.
"""
