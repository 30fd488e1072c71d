"""Tests of how pending steps are run."""
