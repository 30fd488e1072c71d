"""The walk over a function's syntax tree: statements, expressions and calls, with the walker that holds their state.

In: a function and the abstract values of its arguments. Out: what it returns, and the guards on every place that was
read. What always holds: no code of the user's runs; what is not understood ends the walk with `Refused`.
"""
