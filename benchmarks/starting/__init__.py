"""How soon a new process has compiled results, with nothing kept on disk and with everything kept.

In: models of `benchmarks.models`. Out: a table of what their first calls take, cold and warm. What always holds:
each figure comes from a process of its own, the warm one finds what the cold one has left, and the model has run
before, so that what PyTorch does once is not counted as ingot's.
"""
