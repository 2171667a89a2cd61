"""The machinery behind the exercises."""
