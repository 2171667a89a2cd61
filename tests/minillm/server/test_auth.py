"""The API key guards everything but the page and /health."""

import pytest
from starlette.testclient import TestClient

from minillm.server.app import build_app

KEY = "s3cret-ключ"
BODY = {"messages": [{"role": "user", "content": "hi"}]}
GUARDED = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/metrics"),
    ("GET", "/version"),
    ("GET", "/engine/events"),
    ("GET", "/no/such/path"),
    ("GET", "/page"),
]


@pytest.fixture
def locked(engine):
    with TestClient(build_app(engine, api_key=KEY)) as client:
        yield client


def bearer(key, scheme="Bearer"):
    return {"authorization": f"{scheme} {key}".encode()}


@pytest.mark.parametrize("method, path", GUARDED)
def test_without_the_key(locked, engine, method, path):
    response = locked.request(method, path, json=BODY if method == "POST" else None)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    assert KEY not in response.text
    assert not engine.submitted


@pytest.mark.parametrize("path", ["/", "/health", "/page/style.css"])
def test_what_stays_open(locked, path):
    assert locked.get(path).status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_key(locked, scheme):
    assert locked.post("/v1/chat/completions", json=BODY, headers=bearer(KEY, scheme)).status_code == 200
    assert locked.get("/metrics", headers=bearer(KEY, scheme)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        bearer(""),
        bearer(KEY[:-1]),
        bearer(KEY + "x"),
        bearer(KEY.upper()),
        bearer(KEY, "Basic"),
        {"authorization": KEY.encode()},
        {"x-api-key": KEY.encode()},
        [(b"authorization", f"Bearer {KEY}".encode()), (b"authorization", b"Bearer other")],
    ],
)
def test_with_something_else(locked, headers):
    assert locked.get("/v1/models", headers=headers).status_code == 401


def test_the_key_is_asked_for_before_the_body_is_judged(locked):
    assert locked.post("/v1/chat/completions", content=b"x" * 5_000_000).status_code == 401  # not 413, nor 415


def test_without_an_api_key_everybody_may_come(client):
    assert client.get("/v1/models").status_code == 200
    assert client.get("/v1/models", headers=bearer("anything")).status_code == 200
