"""Tests of following: Python runs, compiled segments stand in for its arithmetic."""
