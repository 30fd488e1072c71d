"""The ways into ingot: how users write what is to be fused.

In: functions and modules for `ingot.jit` (`jit`), fusions written with `FusionDefinition`, graphs that torch.compile
hands over. Out: objects that are called like what went in. What always holds: frontends use the packages below, and no
package below uses a frontend.
"""
