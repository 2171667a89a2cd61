"""The browser, and the whole site as a reader gets it: over http, and as the offline copy opened from its folder."""

import functools
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")  # not the session: while it lives, no other test may start a browser or an event loop of its own
def chromium():
    from playwright.sync_api import sync_playwright  # not at the top: the file is collected where playwright is not installed

    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.fail(f"no browser found among {', '.join(names)}: install Chromium, or set CHROMIUM to one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def data():
    """tools/website/calculator_data.py, which is no package: what writes the calculators' tables."""
    sys.path.insert(0, str(ROOT / "tools" / "website"))
    try:
        import calculator_data
    finally:
        sys.path.pop(0)
    return calculator_data


@dataclass(frozen=True)
class Site:
    """A built site. base: the address of its folder, with a slash at the end; log: what the build said."""

    folder: Path
    base: str
    log: str

    def pages(self) -> list[str]:
        """Of every page the path below base, as links to it read: "" is home."""
        names = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.html"))
        return [self.page(name) for name in names if name != "404.html"]

    def page(self, name: str) -> str:
        return name if self.base.startswith("file:") else name.removesuffix("index.html")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def http_site(tmp_path_factory):
    folder, log = _built(tmp_path_factory, offline=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Site(folder, f"http://127.0.0.1:{server.server_port}/", log)
        server.shutdown()


@pytest.fixture(scope="session")
def file_site(tmp_path_factory):
    folder, log = _built(tmp_path_factory, offline=True)
    return Site(folder, f"{folder.as_uri()}/", log)


def _built(tmp_path_factory, offline: bool) -> tuple[Path, str]:
    """Built once, whichever of pytest's workers needs it first. Not strictly: test_pages.py says what the build complained of."""
    from filelock import FileLock  # torch brings it

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / ("site-offline" if offline else "site-http")
    log = folder.with_suffix(".log")
    with FileLock(shared / "site.lock"):  # one build at a time: each writes generated pages below docs/
        if not log.exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
            settings = {"SITE_OFFLINE": str(offline).lower(), "NO_MKDOCS_2_WARNING": "1"}
            done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.fail(f"the site cannot be built:\n{done.stderr[-3000:]}")
            log.write_text(done.stderr, "utf-8")
    return folder, log.read_text("utf-8")


class Visitor:
    """Opens pages in one browser context and notes what no page may do: log an error, or ask another place for anything."""

    def __init__(self, browser, site: Site, **options):
        self.site, self.faults = site, []
        self.context = browser.new_context(**({"viewport": DESKTOP} | options))
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self._note(f"error: {error}"))
        self.page.on("console", lambda message: self._note(f"console: {message.text}") if message.type == "error" else None)
        self.page.on("response", lambda answer: self._note(f"{answer.status}: {answer.url}") if answer.status >= 400 else None)
        self.context.on("request", lambda request: None if self._ours(request.url) else self._note(f"asks {request.url}"))

    def _ours(self, url: str) -> bool:
        return url.startswith((self.site.base, "data:", "blob:"))

    def _note(self, fault: str) -> None:
        self.faults.append(f"{self.page.url.removeprefix(self.site.base) or 'home'}: {fault}")

    def open(self, name: str = ""):
        self.page.goto(self.site.base + name)
        return self.page


@pytest.fixture
def visitor(chromium):
    """visitor(site, viewport=PHONE, color_scheme="dark", ...) -> a Visitor; at the end none may have noted a fault."""
    visitors = []

    def make(site, **options):
        visitors.append(Visitor(chromium, site, **options))
        return visitors[-1]

    yield make
    for one in visitors:
        one.context.close()
    assert [fault for one in visitors for fault in one.faults] == []


@pytest.fixture
def phone():
    return {"viewport": PHONE, "has_touch": True}
