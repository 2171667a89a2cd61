"""How quick the site is: its build with every module written, what a page weighs, its first paint, the search.

    python benchmarks/site_speed.py            # about two minutes; writes results/site_speed.json
    python benchmarks/site_speed.py --no-save

The build is timed on a copy of the repository in which every module that is not written yet has the notebook of one that is.
Everything else is measured on that copy: the search then has the whole course to look through. Needs Chromium (CHROMIUM=path).
"""

from __future__ import annotations

import functools
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from shared.course import load_course
from shared.environment import capture
from shared.evidence import Evidence, measured
from shared.results import RESULTS, save, table

ROOT = Path(__file__).resolve().parents[1]
BUILD = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir")
PACKED = {".woff2", ".png", ".gz"}
FIGURES = {".png", ".svg"}
PAGES = {"home": "", "module": "series/c2_anatomy/03_kv_cache/"}
QUESTIONS = ("KV cache", "paged", "scheduler", "roofline", "tokens a second", "SamplingParams", "speculative decoding")
REPEATS = 5
NOT_A_MODEL = {"checkpoint": None, "dtype": None, "input_tokens": None, "output_tokens": None, "concurrency": 1}
ANSWERED = """async (question) => {
    const field = document.querySelector(".md-search__input"), list = document.querySelector(".md-search-result__list");
    field.value = "";
    field.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
    while (list.children.length) await new Promise((next) => setTimeout(next, 1));
    field.value = question;
    const start = performance.now();
    field.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
    while (!list.children.length) await new Promise((next) => setTimeout(next, 1));
    return performance.now() - start;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def main(save_it: bool) -> int:
    machine = capture()
    entry: Callable[..., Evidence] = functools.partial(measured, environment=machine, **NOT_A_MODEL)
    with tempfile.TemporaryDirectory() as scratch:
        tree, site = Path(scratch, "tree"), Path(scratch, "site")
        notebooks = whole_course(tree)
        seconds = [built(tree, site) for _ in range(3)]
        title = f"Full build of the site, {notebooks} notebooks"
        evidence = [entry("build", seconds, "s", title=title, notebooks=notebooks), *in_browser(site, entry)]
    command = "python benchmarks/site_speed.py"
    heading = "The site: build, weight of a page, first paint, search"
    if save_it:
        print(table(save(RESULTS / "site_speed.json", heading, command, evidence, machine)))
    else:
        print("\n".join(map(str, evidence)))
    return 0


def whole_course(tree: Path) -> int:
    """A copy of what the site is made of; returns how many notebooks it has."""
    for name in ("docs", "labs", "kernels", "minillm", "results", "series", "shared", "tools"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "api"))
    for path in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml", ROOT / "LICENSE", ROOT / "pyproject.toml"):
        shutil.copy(path, tree)
    modules = load_course().modules
    written = [ROOT / module.notebook for module in modules if (ROOT / module.notebook).is_file()]
    for number, module in enumerate(modules):
        target = tree / module.notebook
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(written[number % len(written)], target)
    return sum((tree / module.notebook).is_file() for module in modules)


def built(tree: Path, site: Path) -> float:
    """Seconds, from nothing, start of Python included."""
    for made in (site, tree / "docs/series", tree / "docs/api"):
        shutil.rmtree(made, ignore_errors=True)
    environment = os.environ | {"PYTHONPATH": str(tree), "NO_MKDOCS_2_WARNING": "1"}
    start = time.perf_counter()
    subprocess.run([*BUILD, str(site)], cwd=tree, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def in_browser(site: Path, entry: Callable[..., Evidence]) -> Iterator[Evidence]:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        raise SystemExit(f"error: no browser found among {', '.join(names)}: install Chromium, or set CHROMIUM to one")
    with served(site) as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        setting = {"browser": f"Chromium {browser.version}, headless"}
        for name, path in PAGES.items():
            visits = [visit(browser, base + path) for _ in range(REPEATS)]
            weight = sum(size(site, base, url) for url in visits[0][1])
            yield entry(f"{name}_bytes", [weight / 1e3], "KB", title=f"Bytes that come with the {name} page, gzip, no figures")
            painted = [first for first, _ in visits]
            yield entry(f"{name}_paint", painted, "ms", title=f"First paint of the {name} page, from localhost", **setting)
        ready, answers = search(browser, base)
        yield entry("search_ready", ready, "ms", title="From opening the search to its being ready, from localhost", **setting)
        yield entry("search_answer", answers, "ms", title="From a key to the first results", questions=list(QUESTIONS), **setting)
        packed = len(gzip.compress((site / "search/search_index.json").read_bytes()))
        yield entry("search_bytes", [packed / 1e3], "KB", title="Bytes that come when the search is opened, gzip")
        browser.close()


@contextmanager
def served(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def visit(browser, url: str) -> tuple[float, list[str]]:
    """Milliseconds to the first paint with an empty cache, and all that the page asked for without being touched."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, asked = context.new_page(), []
    context.on("request", lambda request: asked.append(request.url))
    page.goto(url, wait_until="networkidle")
    paint = page.evaluate("performance.getEntriesByName('first-paint')[0].startTime")
    context.close()
    return paint, list(dict.fromkeys(asked))


def size(site: Path, base: str, url: str) -> int:
    file = site / url.removeprefix(base).partition("?")[0].partition("#")[0]
    file = file / "index.html" if file.is_dir() else file
    if file.suffix in FIGURES:
        return 0
    return file.stat().st_size if file.suffix in PACKED else len(gzip.compress(file.read_bytes()))


def search(browser, base: str) -> tuple[list[float], list[float]]:
    """Milliseconds until the search is ready once opened, three times; then to each answer, each question asked REPEATS times."""
    ready = []
    for _ in range(3):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(base, wait_until="networkidle")
        start = time.perf_counter()
        page.locator(".md-search__input").click()
        page.locator(".md-search-result__meta", has_text="Type to start searching").wait_for(timeout=60_000)
        ready.append(1e3 * (time.perf_counter() - start))
        answers = [page.evaluate(ANSWERED, question) for question in QUESTIONS * REPEATS]
        context.close()
    return ready, answers


if __name__ == "__main__":
    sys.exit(main("--no-save" not in sys.argv[1:]))
