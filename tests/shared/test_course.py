"""The list of modules that everything else takes its names from, and the errors of one that is wrong."""

import re

import pytest

from shared.course import FILE, LAYERS, LEVELS, CourseError, load_course

COURSE = load_course()
SIZES = {"c1": 8, "c2": 9, "c3": 9, "c4": 7, "c5": 7, "c6": 8, "c7": 7, "c8": 9}


def test_the_course_has_its_67_modules_in_order():
    assert {series.id: len(COURSE.modules_of(series.id)) for series in COURSE.series} == SIZES
    ids = [module.id for module in COURSE.modules]
    numbered = [f"{series[1]}.{number + 1}" for series, size in SIZES.items() for number in range(size)]
    assert ids == ["start", *numbered, "capstone", "checklist"]
    assert len(ids) == 67


def test_a_module_knows_its_files():
    module = COURSE.module("2.3")
    assert (module.series, module.name, module.title) == ("c2", "kv_cache", "KV cache")
    assert (module.lab, module.notebook) == ("c2/m03_kv_cache", "series/c2_anatomy/03_kv_cache.ipynb")
    start = COURSE.module("start")
    assert (start.series, start.lab, start.notebook) == (None, "start/m00_the_map", "series/start.ipynb")


def test_files_names_and_questions_are_not_shared():
    for field in ("notebook", "lab", "title", "question", "summary"):
        values = [getattr(module, field) for module in COURSE.modules]
        assert len(set(values)) == len(values), field


def test_questions_ask_and_summaries_tell():
    for entry in (*COURSE.modules, *COURSE.series):
        assert entry.question.endswith("?") and len(entry.question) <= 140, entry.id
    for module in COURSE.modules:
        assert module.summary.endswith(".") and len(module.summary) <= 140, module.id
        assert len(module.title) <= 45, module.id


def test_every_role_has_a_path_from_the_map_to_the_capstone():
    assert [role.id for role in COURSE.roles] == ["backend", "ml", "kernel", "decision"]
    for role in COURSE.roles:
        path = [module.id for module in COURSE.path(role.id)]
        assert path[0] == "start" and {"capstone", "checklist"} <= set(path)
        assert 12 <= len(path) < len(COURSE.modules)
    with pytest.raises(CourseError, match="there is no role 'cook'; there are backend"):
        COURSE.path("cook")


def test_a_modules_layer_is_one_of_its_series():
    for series in COURSE.series:
        assert {module.layer for module in COURSE.modules_of(series.id)} <= set(series.layers)
    assert len(LAYERS) == 6 and {module.level for module in COURSE.modules} == set(LEVELS)


@pytest.mark.parametrize(
    "asked, hint",
    [("2.33", "did you mean 2.3"), ("kv_cach", "did you mean 2.3"), ("chekclist", "checklist"), ("zzz", "ids are like 2.3")],
)
def test_an_unknown_module_is_answered_with_what_is_near(asked, hint):
    with pytest.raises(CourseError, match=f"no module '{asked}'; .*{re.escape(hint)}"):
        COURSE.module(asked)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('name = "kv_cache"\n', "", "module 3 of c2 has no 'name'"),
        ('name = "kv_cache"', 'name = "KV cache"', "module 3 of c2: name must be a Python name"),
        ('title = "KV cache"', 'title = ""', "title must be a text, not ''"),
        ('title = "KV cache"', 'titel = "KV cache"', "module 3 of c2 has no 'title'"),
        ('title = "KV cache"', 'title = "KV cache"\nauthor = "x"', "unknown field 'author'"),
        ('title = "KV cache"', 'title = "KV cache"\nlab = "x"', "unknown field 'lab'"),
        ('name = "kv_cache"', 'name = "kv_cache"\nid = "2.3"', "unknown field 'id'"),
        ('number = 3\nname = "kv_cache"', 'number = 12\nname = "kv_cache"', r"numbered \[1, 2, 12, 4"),
        ('number = 3\nname = "kv_cache"', 'name = "kv_cache"', "module None of c2 has no 'number'"),
        ('id = "capstone"', 'id = "start"', "module start is there twice"),
        ('folder = "c8_papers"', 'folder = "c8_papers"\nlayer = 1', "series 'c8': unknown field 'layer'"),
        ("layers = [4, 5]", "layers = [4, 6]", r"layers must be a list of 1 to 5, not \[4, 6\]"),
        ("minutes = 20", "minutes = 200", "minutes must be 15 to 25, not 200"),
        ("minutes = 20", "minutes = true", "minutes must be a whole number, not True"),
        ("layer = 0", "layer = 9", r"layer must be 0 \(all\) to 5, not 9"),
        ('level = "user"', 'level = "wizard"', "level must be one of 'user', 'operator'"),
        ('needs = "CPU"', 'needs = "luck"', "needs must be one of 'CPU'"),
        ('roles = ["kernel", "ml"]', 'roles = ["cook"]', r"roles must be some of .*, not \['cook'\]"),
        ('after = ["start"]', 'after = ["8.1"]', "builds on 8.1, which does not come before it"),
        ("[[role]]", "[role", "is not valid TOML"),
    ],
)
def test_a_wrong_list_is_refused_in_one_line(tmp_path, old, new, message):
    text = FILE.read_text("utf-8")
    assert old in text
    file = tmp_path / "modules.toml"
    file.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(CourseError, match=message) as caught:
        load_course(file)
    assert "\n" not in str(caught.value) and "modules.toml" in str(caught.value)


def test_a_missing_list_is_an_error_that_says_how_to_get_it_back(tmp_path):
    with pytest.raises(CourseError, match="git restore"):
        load_course(tmp_path / "modules.toml")


def test_layers_and_folders_of_series_match_their_ids():
    for series in COURSE.series:
        assert re.fullmatch(series.id + r"_[a-z]+", series.folder)
