"""The page is complete, typed, and may load nothing from elsewhere."""

import re

import numpy as np
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
        references += [f"page/{name}" for name in re.findall(r'(?:from|import) "\./([^"]+)"', script.read_text("utf-8"))]
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


def test_every_element_a_script_asks_for_is_there():
    html = (FOLDER / "index.html").read_text("utf-8")
    ids = set(re.findall(r'\bid="([^"]+)"', html))
    asked = {name for script in FOLDER.glob("*.js") for name in re.findall(r'\$\("([^"]+)"\)', script.read_text("utf-8"))}
    assert asked
    assert asked <= ids
    for attribute in ("for", "aria-labelledby", "aria-describedby"):
        for names in re.findall(rf'\b{attribute}="([^"]+)"', html):
            assert set(names.split()) <= ids


# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009:
# linear RGB as people see it who lack one kind of cone
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour: str) -> np.ndarray:
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Ottosson's OKLab, in which a distance of about 0.02 can just be seen."""
    cones = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
             [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
    axes = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660]]  # fmt: skip
    return np.array(axes) @ np.cbrt(np.array(cones) @ np.clip(rgb, 0, 1))


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast ratio."""
    light, dark = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def themes() -> dict[str, dict[str, str]]:
    """{"light": {variable: colour}, "dark": ...} from both style sheets."""
    found = {"light": {}, "dark": {}}
    for name in ("style.css", "watch.css"):
        blocks = re.findall(r":root \{(.*?)\}", (FOLDER / name).read_text("utf-8"), re.DOTALL)
        for theme, block in zip(found, blocks, strict=True):
            found[theme] |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_request_colours_can_be_told_apart_by_everybody(theme):
    colours = themes()[theme]
    palette = [colours[f"request-{i}"] for i in range(8)]
    for ground in ("ground", "raised"):
        assert min(contrast(colour, colours[ground]) for colour in palette) >= 3
    for vision, matrix in VISION.items():
        seen = [oklab(np.array(matrix) @ linear(colour)) for colour in palette]
        closest = min(np.linalg.norm(seen[i] - seen[j]) for i in range(8) for j in range(i))
        assert closest > 0.08, f"two colours are too close with {vision}"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ink, ground", [("ink", "raised"), ("quiet", "raised"), ("quiet", "ground"), ("on-accent", "accent")])
def test_text_has_contrast(theme, ink, ground):
    assert contrast(themes()[theme][ink], themes()[theme][ground]) >= 4.5
