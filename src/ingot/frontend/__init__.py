"""The ways into ingot: how users write what is to be fused."""
