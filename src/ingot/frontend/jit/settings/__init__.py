"""What users can set: options of `ingot.jit`, whether anything is compiled at all, and what is logged."""
