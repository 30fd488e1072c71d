"""The language that functions of `math` are written in.

In order of reading: `definitions` (what a function is, and for which targets it has forms), `words` (arithmetic on
numbers and bits, by operators), `control` (choices), `formats` (how floating-point types lie in bits).
"""
