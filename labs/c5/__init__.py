"""Exercises of series C5, kernels in Triton."""
