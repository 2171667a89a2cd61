"""What a page costs the reader: the bytes that come with it, as a static host sends them. Times are benchmarks/site_speed.py's.

Run with `pytest -m browser`.
"""

import gzip
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

BUDGET = 300_000
PACKED = {".woff2", ".png", ".gz"}  # a host does not compress these once more
FIGURES = {".png", ".svg"}
SERIES = Path(__file__).resolve().parents[2] / "series"
NOTEBOOKS = sorted(path for path in SERIES.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
MODULES = [f"{path.relative_to(SERIES.parent).with_suffix('').as_posix()}/" for path in NOTEBOOKS]


def size(site, url) -> int:
    """Bytes of the answer, without its headers: gzip where it helps, nothing for figures."""
    file = site.folder / url.removeprefix(site.base).partition("?")[0].partition("#")[0]
    file = file / "index.html" if file.is_dir() else file
    if file.suffix in FIGURES:
        return 0
    return file.stat().st_size if file.suffix in PACKED else len(gzip.compress(file.read_bytes()))


@pytest.mark.parametrize("name", ["", "calculators/memory/", *MODULES])
def test_a_page_comes_with_less_than_300_kb(http_site, visitor, name):
    reader, asked = visitor(http_site), []
    reader.context.on("request", lambda request: asked.append(request.url))
    page = reader.open(name)
    page.wait_for_load_state("networkidle")
    sizes = {url: size(http_site, url) for url in set(asked)}
    assert len(sizes) > 10
    assert sum(sizes.values()) < BUDGET, sorted(sizes.items(), key=lambda item: -item[1])[:8]
    assert not any("search_index" in url or "mermaid" in url for url in asked)
