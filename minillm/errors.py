"""Errors that a user is meant to read: each names the cause and the way out, and is shown without a traceback."""


class MinillmError(Exception):
    """Base of every error whose message is written for the user."""


class ConfigError(MinillmError):
    """A flag or a configuration value that cannot work."""


class CheckpointError(MinillmError):
    """A model that cannot be found, fetched, read or understood."""


class RequestError(MinillmError, ValueError):
    """A request that can never be served as it stands (HTTP 400).

    param: the request field at fault, as the client spells it, or None. code: a name for programs to know the error by.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.param, self.code = param, code


class ContextLengthError(RequestError):
    """A prompt, with the answer it asks for, that is longer than the model's context."""

    def __init__(self, message: str, param: str):
        super().__init__(message, param, "context_length_exceeded")  # OpenAI's


class BadLogitsError(MinillmError):
    """The model's numbers failed for one request: NaN or infinity, so that there is no next token (HTTP 500)."""

    def __init__(self):
        super().__init__(
            "the model gave NaN or infinity instead of logits for this request, so it cannot go on; --dtype float32 helps where "
            "numbers grew too large, else look at the checkpoint"
        )


class EngineDeadError(MinillmError):
    """The engine's thread has stopped after an internal error; nothing more can be served."""
