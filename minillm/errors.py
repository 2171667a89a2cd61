"""Errors that a user is meant to read: each names the cause and the way out, and is shown without a traceback."""


class MinillmError(Exception):
    """Base of every error whose message is written for the user."""


class ConfigError(MinillmError):
    """A flag or a configuration value that cannot work."""


class CheckpointError(MinillmError):
    """A model that cannot be found, fetched, read or understood."""


class RequestError(MinillmError, ValueError):
    """A request that can never be served as it stands (HTTP 400).

    param: the request field at fault, as the client spells it, or None.
    """

    def __init__(self, message: str, param: str | None = None):
        super().__init__(message)
        self.param = param


class EngineDeadError(MinillmError):
    """The engine's thread has stopped after an internal error; nothing more can be served."""
