"""Tensors are as tiny here as those of the operators."""

from tests.ops.conftest import one_thread as one_thread
