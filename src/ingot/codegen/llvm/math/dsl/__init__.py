"""The language that functions of `math` are written in.

In: Python functions over `words`. Out: emitters of LLVM IR for scalars and vectors. What always holds: one definition
serves all targets, unless it declares a form of its own for one.

In order of reading: `definitions` (what a function is, and for which targets it has forms), `words` (arithmetic on
numbers and bits, by operators), `control` (choices), `formats` (how floating-point types lie in bits).
"""
