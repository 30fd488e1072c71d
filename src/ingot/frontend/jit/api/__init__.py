"""What users call: `ingot.jit` and its options, compiled functions, `explain`, `disable`, `reset`.

In: a function, method, module or class. Out: an object that is called like it, and texts that say what became of it.
What always holds: name, signature and documentation stay, and a call gives what the original would give.
"""
