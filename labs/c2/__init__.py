"""Exercises of series C2, the anatomy of an engine."""
