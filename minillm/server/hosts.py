"""Which names a server on a loopback address answers to.

A web page may point a name of its own at 127.0.0.1 ("DNS rebinding"); to the browser the server then is that page's own, and
no rule about other origins keeps the page from reading answers. But the browser still sends that name as Host.
"""

from __future__ import annotations

import ipaddress
import re

from minillm.server.errors import error_response

HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+)(:[0-9]*)?")  # a name or an address, IPv6 in brackets, then perhaps a port


class LoopbackHosts:
    """ASGI middleware: a request whose Host is no name of the loopback interface is answered with 400."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not names_loopback(hosts[0]):
                message = (
                    f"this server listens on this machine alone and is asked for by the name {', '.join(hosts)!r}; ask for "
                    "localhost or 127.0.0.1, or start it with another --host"
                )
                await error_response(400, message, code="invalid_host")(scope, receive, send)
                return
        await self.app(scope, receive, send)


def names_loopback(host: str) -> bool:
    """Whether a Host header says localhost, an address of 127.0.0.0/8 or [::1], with a port or without."""
    if (match := HOST.fullmatch(host.strip())) is None:
        return False
    name = match[1].lower()
    return name == "localhost" or is_loopback(name.strip("[]"))


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
