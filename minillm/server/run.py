"""A port to listen on, taken before the model is loaded, and uvicorn on it until Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from minillm.errors import ConfigError
from minillm.server.hosts import LoopbackHosts, is_loopback
from minillm.server.limits import SHUTDOWN_TIMEOUT_S

log = logging.getLogger("minillm")

LINGER_S = 3  # for clients to read the end of their answers; one that does not read is cut off


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, not listening yet: clients are refused, not kept waiting, while the model loads.

    port 0 picks a free one. Raises ConfigError when the address cannot be had.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, OverflowError) as e:
        raise ConfigError(f"--host {host} --port {port}: no such address ({e})") from e
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # restart at once, though old connections linger
        sock.bind(address)
    except OSError as e:
        sock.close()
        raise _cannot_listen(host, port, e) from e
    return sock


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} is in use, perhaps by another server of yours; stop that one or choose another with --port"
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"port {port} needs special rights on this system; choose one above 1023 with --port")
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"--host {host} is no address of this machine; 127.0.0.1 serves it alone, 0.0.0.0 its whole network")
    return ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}")


def url(sock: socket.socket) -> str:
    """Where a browser on this machine finds the server."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn, calling `on_ready` once it answers. `should_exit = True` from any thread stops it, in this order:

    new requests are answered with 503 while those accepted go on, for at most shutdown_timeout_s seconds; then the engine
    stops, and answers still open end in an error event, not in a cut connection; then the port is closed.
    """

    def __init__(self, app, on_ready: Callable[[], None] = lambda: None, shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S):
        super().__init__(uvicorn.Config(app, log_level="warning", lifespan="on", ws="none", timeout_graceful_shutdown=LINGER_S))
        self._engine, self._on_ready, self._shutdown_timeout_s = app.state.serving.engine, on_ready, shutdown_timeout_s
        self._hurry = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._engine.drain()
        if self._engine.num_unfinished:
            log.info(
                "shutting down: %d requests may finish within %g s; Ctrl-C ends them now",
                self._engine.num_unfinished, self._shutdown_timeout_s,
            )  # fmt: skip
        deadline = time.monotonic() + self._shutdown_timeout_s
        while self._engine.num_unfinished and time.monotonic() < deadline and not self._hurry:
            await asyncio.sleep(0.05)
        await self._engine.stop()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame) -> None:
        """The first Ctrl-C begins the shutdown, the second ends the waiting, the third is uvicorn's hard stop."""
        if self.should_exit and not self._hurry:
            self._hurry = True
        else:
            super().handle_exit(sig, frame)


def serve(
    app,
    sock: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
    shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S,
) -> None:
    """Serve until SIGINT or SIGTERM; on a loopback address, only what is asked for by a loopback name. Raises ConfigError if
    another process began to listen on the port meanwhile."""
    try:
        sock.listen()
    except OSError as e:
        raise _cannot_listen(*sock.getsockname()[:2], e) from e
    if is_loopback(sock.getsockname()[0]):
        app.add_middleware(LoopbackHosts)
    with suppress(KeyboardInterrupt):  # uvicorn has shut down in good order by then, and passes the signal on
        Server(app, on_ready, shutdown_timeout_s).run(sockets=[sock])
