"""What a walk knows: abstract values, guards on the places that they were read from, open sizes, recorded answers.

In: objects, places and numbers, as the walk meets them. Out: values that are compared and merged, and guards that are
checked at later calls. What always holds: a value stands for the same thing at each call for which the guards hold.
"""
