"""The command `ingot`."""
