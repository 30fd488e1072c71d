"""From loops to machine code."""
