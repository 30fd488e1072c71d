"""What users call: `ingot.jit` and its options, compiled functions, `explain`, `disable`, `reset`."""
