"""Exercises of the map."""
