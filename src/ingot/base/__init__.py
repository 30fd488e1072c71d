"""What every other package stands on: errors, data types, sizes, value types, configuration, the stage table.

In: numbers, names and settings, the environment's among them. Out: small immutable values and one class for each kind
of error. What always holds: no module here imports from another package of ingot.
"""
