"""What is known of torch's functions before they are called: their roles, the shapes they give, how they are followed.

In: a function of torch and the arguments of a call. Out: its role, shapes of results, a form that can be followed. What
always holds: a function that no table names has no rule, and PyTorch runs it.
"""
