"""`ingot.jit`: functions and modules compiled by calling them."""
