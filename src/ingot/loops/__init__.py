"""Loops: programs, and how they become nests of loops over the elements of tensors.

In: clusters of operations. Out: a program without shapes (`program`), and for a call a schedule and a nest (`nest`), on
the CPU (`cpu`) or a GPU (`gpu`). What always holds: nests know no shapes; an interpreter for each kind defines what
they mean.
"""
