"""Formulas are drawn while the site is built, by the KaTeX that pages have: its program is a third of what one would load.

KaTeX needs node: one on PATH, or the one that comes with playwright. Without either, pages draw their formulas themselves
(docs/assets/js/math.js).
"""

from __future__ import annotations

import html
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

KATEX = "assets/vendor/katex/katex.min.js"
# What arithmatex leaves: \( \) within a line, \[ \] on lines of its own.
FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\s*(?P<text>\\[(\[][^<]*\\[)\]])\s*</(?P=tag)>')
DRAWN = 'class="arithmatex drawn"'
PROGRAM = """
const katex = require(process.argv[1]);
const draw = ([text, displayMode]) => katex.renderToString(text, { displayMode, throwOnError: false, strict: "ignore" });
process.stdout.write(JSON.stringify(JSON.parse(require("fs").readFileSync(0, "utf8")).map(draw)));
"""


def draw_all(site: Path, info: Callable[[str], None]) -> None:
    """Changes the built pages below `site`."""
    node = find_node()
    if node is None:
        info("Formulas are left to be drawn by each page's reader: no node is installed, and no playwright, which has one")
        return
    pages = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    texts = sorted({match["text"] for page in pages.values() for match in FORMULA.finditer(page)})
    drawn = dict(zip(texts, _draw(texts, node, site / KATEX), strict=True)) if texts else {}
    for path, page in pages.items():
        new = FORMULA.sub(lambda m: f"<{m['tag']} {DRAWN}>{drawn[m['text']]}</{m['tag']}>", page)
        if new != page:
            path.write_text(new, "utf-8")


def find_node() -> str | None:
    """The path of a node, if there is one."""
    if found := shutil.which("node"):
        return found
    playwright = importlib.util.find_spec("playwright")
    bundled = playwright and Path(playwright.origin).with_name("driver") / "node"
    return str(bundled) if bundled and bundled.is_file() else None


def _draw(texts: list[str], node: str, katex: Path) -> list[str]:
    """HTML of each formula, delimiters and entities still in its text; of a faulty one, its text in red."""
    asked = [[html.unescape(text)[2:-2], text.startswith("\\[")] for text in texts]
    command = [node, "-e", PROGRAM, str(katex.resolve())]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, encoding="utf-8", timeout=60, check=False
    )
    if done.returncode:
        raise RuntimeError(f"KaTeX, run by {node}, ended with {done.returncode}: {done.stderr[-1000:]}")
    return json.loads(done.stdout)
