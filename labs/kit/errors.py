"""What goes wrong for a user of the labs, in one line."""


class LabError(Exception):
    """One line: the cause, and the way out."""
