"""From a trace to a program: partition into regions and library calls, generated code, CUDA graphs.

In: a `Trace`. Out: a `Program`, which runs it. What generated code cannot do runs as PyTorch's own call.
"""
