"""What tools/notebooks.py is made of: writing, running and checking the course's notebooks."""
