"""From a trace to a program: partition into regions and library calls, generated code, CUDA graphs.

In: a `Trace`. Out: a `RecordedProgram`, which runs it. What always holds: an operation that generated code cannot
compute runs as PyTorch's own call, on real tensors, in its place.
"""
