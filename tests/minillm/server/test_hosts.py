"""A server on a loopback address answers to loopback names only: against DNS rebinding."""

import pytest
from starlette.testclient import TestClient

from minillm.server import run
from minillm.server.app import build_app
from minillm.server.hosts import names_loopback


@pytest.fixture
def client_of(engine, monkeypatch):
    """client_of("127.0.0.1"): a client of an app that was served on that address (but through no socket)."""
    socks, clients = [], []
    monkeypatch.setattr(run.Server, "run", lambda self, sockets: None)

    def serve(host):
        sock = run.bind(host, 0)
        socks.append(sock)
        app = build_app(engine, api_key="secret")
        run.serve(app, sock)
        client = TestClient(app, base_url=run.url(sock))
        clients.append(client.__enter__())
        return client

    yield serve
    for client in clients:
        client.__exit__(None, None, None)
    for sock in socks:
        sock.close()


LOOPBACK = ["localhost", "localhost:8000", "LocalHost:1", "127.0.0.1", "127.0.0.1:80", "127.8.9.10:8000", "[::1]", "[::1]:8000"]
OTHERS = [
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil-localhost",
    "10.0.0.1:8000",
    "0.0.0.0:8000",
    "[::2]",
    "::1",
    "user@localhost",
    "localhost:80:80",
    "localhost/evil",
    "[localhost",
    "",
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_names(host):
    assert names_loopback(host)


@pytest.mark.parametrize("host", OTHERS)
def test_other_names(host):
    assert not names_loopback(host)


def test_on_a_loopback_address(client_of):
    client = client_of("127.0.0.1")
    assert client.get("/health").status_code == 200  # asked for by its own address
    assert client.get("/health", headers={"host": "localhost:1234"}).status_code == 200
    for path in ("/", "/health", "/v1/models", "/metrics"):  # before anything else, the API key included
        response = client.get(path, headers={"host": "evil.example:8000"})
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["code"] == "invalid_host" and error["type"] == "invalid_request_error"
        assert "'evil.example:8000'" in error["message"] and "localhost" in error["message"] and "--host" in error["message"]
    twice = [("host", "localhost"), ("host", "evil.example")]
    assert client.get("/health", headers=twice).status_code == 400


def test_elsewhere_any_name_will_do(client_of):
    client = client_of("0.0.0.0")
    for host in ("evil.example", "gpu-box:8000", "localhost"):
        assert client.get("/health", headers={"host": host}).status_code == 200
