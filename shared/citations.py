"""Citations of other engines' code, checked against lists of what each pinned version holds.

In a notebook's Markdown a citation is a link: package, path inside it, and after `#` the symbol, if one is meant.

    [`Scheduler.schedule`](cite:vllm/vllm/v1/core/sched/scheduler.py#Scheduler.schedule)

`check_all(markdown)` names everything that does not stand in the lists, `Citation.url` is the page with that line. The lists in
shared/engine_symbols/ are made by tools/engine_symbols.py from the packages themselves; llama.cpp is the one inside
llama-cpp-python and goes by that package's version.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SYMBOLS = Path(__file__).resolve().parent / "engine_symbols"
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\(\s*cite:(?P<target>[^)\s]*)\s*\)")
FENCE = r"^(?P<fence>```+|~~~+)[^\n]*\n.*?^(?P=fence)[ \t]*$"
CODE = re.compile(FENCE + r"|(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)", re.MULTILINE | re.DOTALL)
PAGES = {  # where a package's files can be read, at the version listed
    "vllm": "https://github.com/vllm-project/vllm/blob/v{version}/{path}",
    "sglang": "https://github.com/sgl-project/sglang/blob/v{version}/python/{path}",
    "transformers": "https://github.com/huggingface/transformers/blob/v{version}/src/{path}",
}


class CitationError(ValueError):
    """A citation of something that is not there; one line, with near matches."""


@dataclass(frozen=True)
class Package:
    """What a version of a package holds. files: {path: {symbol: line}}, a method as `Class.method`, in C++ `Class::method`."""

    name: str
    version: str
    files: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Citation:
    """One link. text: what the reader sees; symbol: None if only the file is meant."""

    package: str
    path: str
    symbol: str | None = None
    text: str = ""

    @property
    def version(self) -> str:
        return load(self.package).version

    @property
    def url(self) -> str | None:
        """The page that shows it, at that line. None: that version of the package is on no page. Raises CitationError."""
        line = check_citation(self.package, self.path, self.symbol)
        if self.package not in PAGES:
            return None
        return PAGES[self.package].format(version=self.version, path=self.path) + (f"#L{line}" if line else "")


def check_citation(package: str, path: str, symbol: str | None = None) -> int | None:
    """The line at which the symbol is defined, None for a whole file. Raises CitationError, naming what comes nearest."""
    listed = load(package)
    where = f"{package} {listed.version}"
    if path not in listed.files:
        raise CitationError(f"{where} has no file {path!r} in its list{_near_path(path, listed.files)}")
    if symbol is None:
        return None
    symbols = listed.files[path]
    if symbol not in symbols:
        hint = _near(symbol, symbols)
        if not hint:
            elsewhere = [other for other, names in listed.files.items() if symbol in names][:3]
            hint = f"; it stands in {', '.join(elsewhere)}" if elsewhere else ""
        raise CitationError(f"{where}: {path} defines no {symbol!r}{hint}")
    return symbols[symbol]


def find_citations(markdown: str) -> list[Citation]:
    """Every `cite:` link of a Markdown text, in order, except in code. Raises CitationError for one of another form."""
    return [_parse(match["target"], match["text"]) for match in LINK.finditer(_without_code(markdown))]


def check_all(markdown: str) -> list[str]:
    """What is wrong with the citations of a Markdown text, one line each; empty if nothing."""
    wrong = []
    for match in LINK.finditer(_without_code(markdown)):
        try:
            citation = _parse(match["target"], match["text"])
            check_citation(citation.package, citation.path, citation.symbol)
        except CitationError as e:
            wrong.append(f"cite:{match['target']}: {e}")
    return wrong


def _parse(target: str, text: str) -> Citation:
    location, _, symbol = target.partition("#")
    package, _, path = location.partition("/")
    if not package or not path or ("#" in target and not symbol):
        raise CitationError(f"cite:{target} is not of the form cite:package/path or cite:package/path#symbol")
    return Citation(package, path, symbol or None, text)


def _without_code(markdown: str) -> str:
    """Code blanked, except code that is itself the text of a link."""

    def blank(match: re.Match) -> str:
        inside_link = markdown[: match.start()].endswith("[") and markdown[match.end() :].startswith("](")
        return match[0] if inside_link else re.sub(r"[^\n]", " ", match[0])

    return CODE.sub(blank, markdown)


def packages() -> list[str]:
    """Names of the packages that can be cited."""
    return sorted(path.stem for path in SYMBOLS.glob("*.txt"))


@lru_cache(maxsize=8)
def load(package: str) -> Package:
    """The list of a package. Raises CitationError for one that has none."""
    path = SYMBOLS / f"{package}.txt"
    if package not in packages():
        raise CitationError(f"there is no list of {package!r}; citable are {', '.join(packages())}")
    version, *lines = path.read_text(encoding="utf-8").splitlines()
    files = {}
    for line in lines:
        name, *symbols = line.split(" ")
        files[name] = dict(_unpack(symbols))
    return Package(package, version.split(" ")[-1], files)


def write(package: Package, folder: Path) -> Path:
    """Write a list: a heading with the version, then a line a file, `path symbol=line ...`; a leading dot a level deeper."""
    rows = [f"# {package.name} {package.version}"]
    for path, symbols in sorted(package.files.items()):
        rows.append(" ".join([path, *_pack(symbols)]))
    file = folder / f"{package.name}.txt"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def _pack(symbols: dict[str, int]) -> Iterable[str]:
    for name, line in sorted(symbols.items(), key=lambda entry: entry[0].split(".")):  # a class, then what is in it
        yield f"{'.' * name.count('.')}{name.rsplit('.', 1)[-1]}={line}"


def _unpack(entries: Iterable[str]) -> Iterable[tuple[str, int]]:
    parents: list[str] = []
    for entry in entries:
        name, _, line = entry.rpartition("=")
        bare = name.lstrip(".")
        parents = [*parents[: len(name) - len(bare)], bare]
        yield ".".join(parents), int(line)


def _near(wanted: str, names: Iterable[str]) -> str:
    names = list(names)
    last = re.split(r"\.|::", wanted)[-1]
    near = [name for name in names if re.split(r"\.|::", name)[-1] == last][:3] or difflib.get_close_matches(
        wanted, names, 3, 0.7
    )
    return f"; do you mean {', '.join(near)}?" if near else ""


def _near_path(wanted: str, paths: Iterable[str]) -> str:
    paths = list(paths)
    same_name = [path for path in paths if path.rsplit("/", 1)[-1] == wanted.rsplit("/", 1)[-1]]
    near = difflib.get_close_matches(wanted, same_name or paths, 3, 0.3 if same_name else 0.8)
    return f"; do you mean {', '.join(near)}?" if near else ""
