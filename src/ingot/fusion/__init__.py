"""Which operations become one kernel.

In: a graph, and what a backend can compute. Out: the graph's operations in an order that can run, each in a cluster or
alone. What always holds: a cluster is convex (no path leaves it and comes back), and it reduces along one set of axes.
"""
