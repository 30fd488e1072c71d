"""Whole training steps on an NVIDIA GPU: eager PyTorch, torch.compile of the model, ingot.jit of the model or the step.

`python -m benchmarks.cuda --training` runs it, `--help` after that says how. In order of reading: `cases` (what is
trained), `contests` (who trains it, compared and measured), `memory` and `report`. Models that are not trained alone,
clocks and rounds are shared with the comparisons of models and of single cases.
"""
