"""The graph: nodes, building, checking, printing, parsing, interpreting.

In: operators of `ops`, applied to handles by a builder, or a graph's text. Out: an immutable `Graph`, its text, or by
the interpreter its results. What always holds: equal expressions are one node, and a graph's text parses back to it.
"""
