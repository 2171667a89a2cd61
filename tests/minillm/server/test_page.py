"""The page is complete, typed, and may load nothing from elsewhere."""

import re

import pytest

from minillm.server.page import FOLDER, MEDIA_TYPES


def test_the_page_is_served_with_a_strict_policy(client):
    response = client.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    assert client.head("/").status_code == 200


@pytest.mark.parametrize("name, media_type", MEDIA_TYPES.items())
def test_its_files_have_their_types(client, name, media_type):
    response = client.get(f"/page/{name}")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(media_type)
    assert response.headers["x-content-type-options"] == "nosniff"


def test_every_file_is_served_and_every_reference_exists(client):
    assert {path.name for path in FOLDER.iterdir()} == set(MEDIA_TYPES)
    references = re.findall(r'(?:src|href)="([^"]+)"', (FOLDER / "index.html").read_text("utf-8"))
    for script in FOLDER.glob("*.js"):
        references += [f"page/{name}" for name in re.findall(r'from "\./([^"]+)"', script.read_text("utf-8"))]
    assert references
    for reference in references:
        assert client.get(f"/{reference}").status_code == 200


def test_nothing_comes_from_another_site():
    for path in FOLDER.iterdir():
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and 'src="//' not in text, path.name
        assert "innerHTML" not in text.replace("never innerHTML", ""), path.name


@pytest.mark.parametrize("name", ["../app.py", "..%2Fapp.py", "%2e%2e/app.py", "nothing.js"])
def test_nothing_else_is_served(client, name):
    assert client.get(f"/page/{name}").status_code == 404
