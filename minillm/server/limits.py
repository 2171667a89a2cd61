"""How much a server takes at once, and how long it waits for it, where no flag says otherwise."""

MAX_QUEUE_SIZE = 1024  # requests that wait
MAX_BODY_BYTES = 4_000_000  # of one HTTP request
SHUTDOWN_TIMEOUT_S = 10.0  # for accepted requests to finish
