"""Tests of functions that decide by the values of tensors and run without Python."""
