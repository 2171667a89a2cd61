"""Citations against the lists of what each pinned engine holds, and the making of those lists."""

import re

import pytest

from shared import citations
from shared.citations import (
    Citation,
    CitationError,
    Package,
    check_all,
    check_citation,
    find_citations,
    load,
    packages,
    write,
)
from shared.engines import PINS

SCHEDULER = "vllm/v1/core/sched/scheduler.py"


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """A package `toy` in place of the real lists."""
    files = {
        "toy/core/scheduler.py": {"Scheduler": 3, "Scheduler.schedule": 5, "Scheduler.Config": 9, "Scheduler.Config.load": 11},
        "toy/engine.py": {"run": 1},
        "toy/src/cache.cpp": {"Cache::find_slot": 7},
        "toy/empty.py": {},
    }
    monkeypatch.setattr(citations, "SYMBOLS", tmp_path)
    monkeypatch.setitem(citations.PAGES, "toy", "https://example.org/{version}/{path}")
    load.cache_clear()
    package = Package("toy", "1.2", files)
    write(package, tmp_path)
    yield package
    load.cache_clear()


# ---- one citation


@pytest.mark.parametrize(
    "package, path, symbol",
    [
        ("vllm", SCHEDULER, "Scheduler.schedule"),
        ("vllm", "vllm/v1/core/kv_cache_manager.py", "KVCacheManager.allocate_slots"),
        ("vllm", "vllm/v1/core/block_pool.py", "BlockPool"),
        ("sglang", "sglang/srt/mem_cache/radix_cache.py", "RadixCache.match_prefix"),
        ("transformers", "transformers/cache_utils.py", "DynamicCache"),
        ("llama.cpp", "src/llama-kv-cache.cpp", "llama_kv_cache::find_slot"),
    ],
)
def test_what_the_course_cites_first_is_listed(package, path, symbol):
    assert check_citation(package, path, symbol) > 0
    assert check_citation(package, path) is None


def test_a_list_comes_back_as_written(lists):
    assert load("toy") == lists
    assert packages() == ["toy"]


def test_a_class_read_in_two_places_keeps_its_methods(lists, tmp_path):
    """Both branches of an `if` define A, with B between: A's second method must not become B's."""
    files = {"toy/a.py": {"A": 2, "A.first": 3, "B": 5, "A.second": 9}}
    write(Package("toy", "1.2", files), tmp_path)
    load.cache_clear()
    assert load("toy").files == files


@pytest.mark.parametrize(
    "path, symbol, message",
    [
        ("toy/scheduler.py", None, r"toy 1.2 has no file 'toy/scheduler.py' in its list; do you mean toy/core/scheduler.py\?"),
        ("toy/core/scheduler.py", "Scheduler.scedule", r"defines no 'Scheduler.scedule'; do you mean Scheduler.schedule"),
        ("toy/core/scheduler.py", "schedule", r"do you mean Scheduler.schedule\?"),
        ("toy/src/cache.cpp", "find_slot", r"do you mean Cache::find_slot\?"),
        ("toy/core/scheduler.py", "run", r"defines no 'run'; it stands in toy/engine.py$"),
        ("toy/empty.py", "nothing_like_it", r"toy/empty.py defines no 'nothing_like_it'$"),
        ("completely/else.rs", None, r"has no file 'completely/else.rs' in its list$"),
    ],
)
def test_what_is_not_there_names_what_comes_nearest(lists, path, symbol, message):
    with pytest.raises(CitationError, match=message):
        check_citation("toy", path, symbol)


def test_an_unknown_package_lists_the_known():
    with pytest.raises(CitationError, match=r"no list of 'tensorrt_llm'; citable are llama.cpp, sglang, transformers, vllm"):
        check_citation("tensorrt_llm", "a.py")


# ---- in Markdown

TEXT = """
See [`Scheduler.schedule`](cite:toy/toy/core/scheduler.py#Scheduler.schedule), and the [engine](cite:toy/toy/engine.py).

A citation is written `[run](cite:toy/toy/nowhere.py)`; another link is [this](https://example.org), a number
[16 GB](evidence:weights).

```markdown
[in a fence](cite:toy/toy/nowhere.py)
```

C++: [`Cache::find_slot`](cite:toy/toy/src/cache.cpp#Cache::find_slot)
"""


def test_citations_are_found_and_code_is_left_alone(lists):
    assert find_citations(TEXT) == [
        Citation("toy", "toy/core/scheduler.py", "Scheduler.schedule", "`Scheduler.schedule`"),
        Citation("toy", "toy/engine.py", None, "engine"),
        Citation("toy", "toy/src/cache.cpp", "Cache::find_slot", "`Cache::find_slot`"),
    ]
    assert check_all(TEXT) == []


def test_every_wrong_citation_is_named(lists):
    wrong = "[a](cite:toy/toy/engine.py#walk) [b](cite:toy) [`c`](cite:other/x.py) [d](cite:toy/toy/engine.py#)"
    lines = check_all(wrong)
    assert len(lines) == 4
    assert lines[0].startswith("cite:toy/toy/engine.py#walk: toy 1.2: toy/engine.py defines no 'walk'")
    assert "not of the form cite:package/path" in lines[1]
    assert "no list of 'other'" in lines[2]
    assert "not of the form" in lines[3]
    with pytest.raises(CitationError, match="not of the form"):
        find_citations(wrong)


def test_a_citation_links_to_its_line(lists):
    cited, whole, _ = find_citations(TEXT)
    assert cited.url == "https://example.org/1.2/toy/core/scheduler.py#L5"
    assert whole.url == "https://example.org/1.2/toy/engine.py"
    with pytest.raises(CitationError):
        _ = Citation("toy", "toy/engine.py", "walk").url


def test_a_package_without_pages_has_no_link():
    assert Citation("llama.cpp", "src/llama-kv-cache.cpp").url is None
    url = Citation("vllm", SCHEDULER, "Scheduler").url
    assert re.fullmatch(rf"https://github.com/vllm-project/vllm/blob/v0.33.0/{SCHEDULER}#L\d+", url)


# ---- the lists


@pytest.mark.parametrize("package, pins", [("vllm", "vllm"), ("sglang", "sglang"), ("llama.cpp", "llama.cpp")])
def test_a_list_is_of_the_pinned_version(package, pins):
    distribution = {"llama.cpp": "llama-cpp-python"}.get(package, package)
    assert f"{distribution}=={load(package).version}" in (PINS / f"{pins}.in").read_text().splitlines()


def test_the_list_of_transformers_is_of_the_version_installed_here():
    transformers = pytest.importorskip("transformers")
    assert load("transformers").version == transformers.__version__


@pytest.mark.parametrize("package", packages())
def test_lists_stay_small_and_hold_whole_names(package):
    assert (citations.SYMBOLS / f"{package}.txt").stat().st_size < 1_000_000
    assert len(load(package).files) > 200
    for path, symbols in load(package).files.items():
        for symbol in symbols:
            assert re.fullmatch(r"~?\w[\w.:~]*", symbol), f"{path}: {symbol}"
