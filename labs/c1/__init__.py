"""Exercises of series C1, the GPU under an engine."""
