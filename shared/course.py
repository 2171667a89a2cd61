"""The course as data: its series and modules in their order, read from series/modules.toml and checked once, here.

Everything that names a module (the notebooks' cards, the exercises, `labs`, the site) takes it from a Course.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent.parent / "series" / "modules.toml"

LAYERS = ("all layers", "hardware", "kernel", "engine", "cluster", "gateway")  # index = a module's `layer`
LEVELS = ("user", "operator", "optimizer", "engine builder")  # what a reader does with models, in rising order
NEEDS = ("CPU", "CPU; a GPU adds a column")
MINUTES = range(15, 26)

_KINDS = {str: "a text", int: "a whole number", list: "a list"}
_TEXTS = {"id": str, "name": str, "title": str, "question": str, "summary": str, "level": str, "needs": str}
_MODULE_FIELDS = {**_TEXTS, "layer": int, "minutes": int, "after": list, "roles": list}
_SERIES_FIELDS = {"id": str, "folder": str, "title": str, "question": str, "layers": list}
_ROLE_FIELDS = {"id": str, "title": str, "for": str}


class CourseError(Exception):
    """modules.toml is wrong, or there is no such module; one line that says which and how to mend it."""


@dataclass(frozen=True)
class Role:
    """A kind of reader, who takes one path through the course. description: who that is and wants what."""

    id: str
    title: str
    description: str


@dataclass(frozen=True)
class Series:
    """Modules on one subject. layers: those of the stack that it covers, 1 (hardware) to 5 (gateway)."""

    id: str  # "c2", also its folder in labs/
    folder: str  # "c2_anatomy", its folder in series/
    title: str
    question: str
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Module:
    """One notebook with its exercises.

    layer: index into LAYERS, 0 for all. level: the lowest of LEVELS that it serves. minutes: of reading. needs: one of NEEDS.
    after: ids of modules to read before. roles: ids of the roles on whose path it lies.
    """

    id: str  # "2.3"; "start", "capstone" and "checklist" stand alone
    series: str | None
    number: int  # within its series; 0 where it stands alone
    name: str
    title: str
    question: str
    summary: str
    layer: int
    level: str
    minutes: int
    needs: str
    after: tuple[str, ...]
    roles: tuple[str, ...]
    notebook: str  # path from the repository's root, with /

    @property
    def lab(self) -> str:
        """The exercise file within labs/, without its suffix: "c2/m03_kv_cache"."""
        return f"{self.series or self.id}/m{self.number:02}_{self.name}"


@dataclass(frozen=True)
class Course:
    """series and modules in reading order: no module comes before one that it builds on."""

    roles: tuple[Role, ...]
    series: tuple[Series, ...]
    modules: tuple[Module, ...]

    def module(self, id: str) -> Module:
        """The module with this id. Raises CourseError, naming what is near, if there is none."""
        for module in self.modules:
            if module.id == id:
                return module
        names = {m.id: m.id for m in self.modules} | {m.name: m.id for m in self.modules}
        near = list(dict.fromkeys(names[match] for match in difflib.get_close_matches(id, names)))
        hint = f"did you mean {' or '.join(near)}?" if near else "ids are like 2.3; start, capstone and checklist stand alone"
        raise CourseError(f"the course has no module {id!r}; {hint}")

    def modules_of(self, series: str | None) -> tuple[Module, ...]:
        """A series' modules; None: those that stand alone."""
        return tuple(module for module in self.modules if module.series == series)

    def path(self, role: str) -> tuple[Module, ...]:
        """What a reader of this role reads, in order. Raises CourseError for an unknown role."""
        if role not in {known.id for known in self.roles}:
            raise CourseError(f"there is no role {role!r}; there are {', '.join(known.id for known in self.roles)}")
        return tuple(module for module in self.modules if role in module.roles)


def load_course(file: Path = FILE) -> Course:
    """Reads and checks the list of modules. Raises CourseError with one line for anything missing, unknown or contradictory."""
    try:
        raw = tomllib.loads(file.read_text("utf-8"))
    except OSError as e:
        raise CourseError(f"cannot read {file}: {e.strerror}; `git restore` brings it back") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise CourseError(f"{file} is not valid TOML: {' '.join(str(e).split())}") from e
    try:
        return _course(raw)
    except CourseError as e:
        raise CourseError(f"{file.name}: {e}") from e


def _course(raw: dict[str, Any]) -> Course:
    _check("the file", raw, {"role": list, "series": list, "module": list})
    roles = tuple(_role(entry) for entry in raw["role"])
    series, modules = [], []
    for entry in raw["series"]:
        fields = dict(entry)
        entries = fields.pop("module", [])
        one = _series(fields)
        series.append(one)
        modules += [_module(module, one) for module in entries]
    alone = [_module(entry, None) for entry in raw["module"]]
    # A map comes before the country; what else stands alone looks back on all of it.
    ordered = [m for m in alone if m.id == "start"] + modules + [m for m in alone if m.id != "start"]
    course = Course(roles, tuple(series), tuple(ordered))
    _check_whole(course)
    return course


def _role(entry: dict[str, Any]) -> Role:
    _check(f"role {entry.get('id')!r}", entry, _ROLE_FIELDS)
    return Role(entry["id"], entry["title"], entry["for"])


def _series(entry: dict[str, Any]) -> Series:
    where = f"series {entry.get('id')!r}"
    _check(where, entry, _SERIES_FIELDS)
    layers = tuple(entry["layers"])
    if not layers or not set(layers) <= set(range(1, len(LAYERS))):
        raise CourseError(f"{where}: layers must be a list of 1 to {len(LAYERS) - 1}, not {entry['layers']}")
    return Series(**entry | {"layers": layers})


def _module(entry: dict[str, Any], series: Series | None) -> Module:
    entry = {"after": []} | entry
    if series:  # an id is said by series and number, and must not be said again
        where, fields = f"module {entry.get('number')} of {series.id}", _MODULE_FIELDS | {"number": int}
        del fields["id"]
    else:
        where, fields = f"module {entry.get('id')!r}", _MODULE_FIELDS
    _check(where, entry, fields)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", entry["name"]):
        raise CourseError(f"{where}: name must be a Python name in small letters, not {entry['name']!r}")
    if entry["layer"] not in range(len(LAYERS)):
        raise CourseError(f"{where}: layer must be 0 (all) to {len(LAYERS) - 1}, not {entry['layer']}")
    for field, allowed in (("level", LEVELS), ("needs", NEEDS)):
        if entry[field] not in allowed:
            raise CourseError(f"{where}: {field} must be one of {', '.join(map(repr, allowed))}, not {entry[field]!r}")
    if entry["minutes"] not in MINUTES:
        raise CourseError(f"{where}: minutes must be {MINUTES[0]} to {MINUTES[-1]}, not {entry['minutes']}")
    values = entry | {"after": tuple(entry["after"]), "roles": tuple(entry["roles"])}
    if series is None:
        return Module(**values, series=None, number=0, notebook=f"series/{entry['id']}.ipynb")
    number, name = entry["number"], entry["name"]
    notebook = f"series/{series.folder}/{number:02}_{name}.ipynb"
    return Module(**values, id=f"{series.id.removeprefix('c')}.{number}", series=series.id, notebook=notebook)


def _check(where: str, entry: dict[str, Any], fields: dict[str, type]) -> None:
    for field, kind in fields.items():
        if field not in entry:
            raise CourseError(f"{where} has no {field!r}")
        if type(entry[field]) is not kind or entry[field] == "":  # not isinstance: true is no number
            raise CourseError(f"{where}: {field} must be {_KINDS[kind]}, not {entry[field]!r}")
    if unknown := sorted(set(entry) - set(fields)):
        raise CourseError(f"{where}: unknown field {unknown[0]!r}; the fields are {', '.join(fields)}")


def _check_whole(course: Course) -> None:
    """What no entry can know alone: names used twice, roles and modules that do not exist, an order that cannot be read."""
    for what, names in (
        ("role", [role.id for role in course.roles]),
        ("series", [series.id for series in course.series]),
        ("module", [module.id for module in course.modules]),
        ("notebook", [module.notebook for module in course.modules]),
    ):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise CourseError(f"{what} {twice[0]} is there twice")
    for series in course.series:
        numbers = [module.number for module in course.modules_of(series.id)]
        if numbers != list(range(1, len(numbers) + 1)):
            raise CourseError(f"series {series.id}: its modules are numbered {numbers}, not 1, 2, 3 …")
    roles, seen = {role.id for role in course.roles}, set()
    for module in course.modules:
        if not module.roles or not set(module.roles) <= roles:
            raise CourseError(f"module {module.id}: roles must be some of {', '.join(sorted(roles))}, not {list(module.roles)}")
        if later := [id for id in module.after if id not in seen]:
            raise CourseError(f"module {module.id} builds on {later[0]}, which does not come before it")
        seen.add(module.id)
