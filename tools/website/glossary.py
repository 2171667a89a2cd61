"""The glossary: its page, and a link with the definition wherever a page first uses a term."""

from __future__ import annotations

import html
import posixpath
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from module_list import exists, href, module_uri

from shared.course import Course

FILE = Path(__file__).resolve().parents[2] / "docs/reference/glossary.toml"
PAGE = "reference/glossary.md"
UNLINKED = re.compile(r"index\.md|about\.md|changelog\.md|course\.md|reference/glossary\.md|api/.*")
# a block of code is one piece: its coloured words are most of a page's tags
TAG = re.compile(r"<!--.*?-->|<pre\b.*?</pre>|<(?P<close>/?)(?P<tag>[a-zA-Z][\w-]*)(?P<rest>[^>]*)>", re.DOTALL)
VOID = {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# where a link would be in the way, or would not be text
CLOSED_TAGS = {"a", "button", "code", "h1", "h2", "h3", "h4", "h5", "h6", "kbd", "label", "nav", "pre", "script"}
CLOSED_TAGS |= {"select", "style", "summary", "svg", "table", "textarea"}
CLOSED_CLASSES = re.compile(r'class="[^"]*\b(?:arithmatex|evidence-cards|nb-html|module-actions|modules|run)\b')


class GlossaryError(ValueError):
    """glossary.toml is wrong; one line that says where."""


@dataclass(frozen=True)
class Term:
    """One entry. forms: the term and its other names; linked: whether pages link its first use."""

    name: str
    definition: str
    aliases: tuple[str, ...] = ()
    module: str | None = None
    link: bool = True

    @property
    def slug(self) -> str:
        """Its anchor on the glossary's page."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def forms(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


def read(file: Path = FILE) -> tuple[Term, ...]:
    """All terms in alphabetical order. Raises GlossaryError for one without a definition, or a name that two terms claim."""
    terms = []
    for name, entry in tomllib.loads(file.read_text("utf-8")).items():
        try:
            terms.append(Term(name, **entry | {"aliases": tuple(entry.get("aliases", ()))}))
        except TypeError as e:
            raise GlossaryError(f"{file.name}, [{name}]: {e}") from e
    owner: dict[str, str] = {}
    for term in terms:
        for form in term.forms:
            if (other := owner.setdefault(form.lower(), term.name)) != term.name:
                raise GlossaryError(f"{file.name}: {form!r} names both {other!r} and {term.name!r}")
    return tuple(sorted(terms, key=lambda term: term.name.lower()))


def glossary(page_uri: str, course: Course) -> str:
    """The page's body, in Markdown: a heading a term, so that the search finds each as a result of its own."""
    letters = [(letter, list(terms)) for letter, terms in groupby(read(), key=lambda term: term.name[0].upper())]
    index = " ".join(f'<a href="#letter-{letter.lower()}">{letter}</a>' for letter, _ in letters)
    parts = [f'<nav class="letters" aria-label="Letters">{index}</nav>']
    for letter, terms in letters:
        parts.append(f"## {letter} {{ #letter-{letter.lower()} .letter }}")
        parts += [_entry(term, page_uri, course) for term in terms]
    return "\n\n".join(parts)


def _entry(term: Term, page_uri: str, course: Course) -> str:
    lines = [f"### {term.name} {{ #{term.slug} .term-name }}", term.definition]
    if term.aliases:
        lines.append(f"Also: {', '.join(term.aliases)}.\n{{ .term-more }}")
    if term.module:
        module = course.module(term.module)
        where = f"{module.id} {html.escape(module.title)}"
        where = f'<a href="{href(page_uri, module_uri(module))}">{where}</a>' if exists(module) else where
        lines.append(f"Taught in {where}.\n{{ .term-more }}")
    return "\n\n".join(lines)


def on_html(body: str, page_uri: str, course: Course, warn) -> str:
    """Called for every page: see markers.py."""
    if UNLINKED.fullmatch(page_uri):
        return body
    return link_terms(body, _known(), posixpath.relpath(PAGE, posixpath.dirname(page_uri) or "."))


@cache
def _known() -> tuple[Term, ...]:
    return read()


def link_terms(body: str, terms: tuple[Term, ...], page: str) -> str:
    """The HTML with each term linked where its text first stands; longest term first where several match.

    Not linked: text inside links, code, headings, buttons, tables, formulas. page: the glossary, as the links name it.
    """
    owners = [(form, term) for term in terms if term.link for form in term.forms]
    owners.sort(key=lambda pair: -len(pair[0]))
    forms = "|".join(f"(?P<t{n}>{_matcher(form)})" for n, (form, _) in enumerate(owners))
    pattern = re.compile(rf"(?<![\w&#./-])(?=\w)(?:{forms})")  # one look at where a word begins, before some 200 forms are tried
    linked: set[str] = set()

    def link(match: re.Match) -> str:
        term = owners[int(match.lastgroup[1:])][1]
        if term.name in linked:
            return match[0]
        linked.add(term.name)
        said = html.escape(term.definition.replace("`", ""))
        return f'<a class="term" href="{page}#{term.slug}" title="{said}">{match[0]}</a>'

    return "".join(pattern.sub(link, piece) if is_text else piece for is_text, piece in _pieces(body))


def _matcher(form: str) -> str:
    """A space also matches a hyphen or a line's end. Entities of HTML are not words."""
    words = r"[\s\-]+".join(re.escape(html.escape(word, quote=False)) for word in form.split())
    case = "" if re.search(r"[A-Z]{2}", form) else "i"
    return rf"(?{case}:{words}(?:s|es)?(?![\w-]))" if case else rf"{words}s?(?![\w-])"


def _pieces(body: str) -> Iterator[tuple[bool, str]]:
    """(whether it is text that may hold links, the piece), in order, all of the body."""
    closed: list[str] = []  # open tags since, and with, the outermost that takes no links
    at = 0
    for match in TAG.finditer(body):
        yield not closed, body[at : match.start()]
        yield False, match[0]
        at = match.end()
        tag = (match["tag"] or "").lower()
        if not tag or tag in VOID or (match["rest"] or "").endswith("/"):
            continue
        if match["close"]:
            if tag in closed:
                while closed.pop() != tag:
                    pass
        elif closed or tag in CLOSED_TAGS or CLOSED_CLASSES.search(match["rest"]):
            closed.append(tag)
    yield not closed, body[at:]


MARKERS = {"glossary": glossary}
