"""The parts of benchmarks/gpu.py: what is run on the card, each section in a process of its own, and how it is recorded."""
