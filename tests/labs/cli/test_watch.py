"""Checking again at each save."""

import os

import pytest
from rich.console import Console

from labs.kit.catalog import find_module
from labs.kit.cli import watch


class Clock:
    """Instead of sleeping, the next step of a story; after the last one the wait must have ended."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, seconds):
        if not self.steps:
            pytest.fail("still waiting")
        self.steps.pop(0)()


def nothing():
    pass


def test_it_waits_until_a_save_is_whole(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("1")
    before = watch.snapshot([file])
    clock = Clock(nothing, lambda: file.write_text("12"), lambda: file.write_text("123"), nothing)
    watch.wait_for_change(before, sleep=clock)
    assert clock.steps == []


def test_a_save_by_renaming_is_a_save_and_a_missing_file_is_not(tmp_path):
    file, new = tmp_path / "a.py", tmp_path / "new"
    file.write_text("1")
    new.write_text("2")
    os.utime(new, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    before = watch.snapshot([file])
    clock = Clock(file.unlink, nothing, nothing, lambda: os.replace(new, file), nothing)
    watch.wait_for_change(before, sleep=clock)
    assert clock.steps == []


def test_what_changed_before_the_wait_counts_at_once(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("1")
    before = watch.snapshot([file])
    file.write_text("12")
    clock = Clock(nothing, nothing)
    watch.wait_for_change(before, sleep=clock)
    assert clock.steps == []


def story(monkeypatch, clone, *results):
    """watch_lab with checks that answer these statuses; a status of 0 is remembered as a pass. The ids that were checked."""
    ids, results = [], list(results)

    def run_checks(modules):
        ids.append(modules[0].id)
        if not results:
            raise KeyboardInterrupt
        result = results.pop(0)
        if result == 0:
            clone.solve(modules[0].path)
            clone.note(modules[0].id, True)
        return result

    monkeypatch.setattr(watch, "run_checks", run_checks)
    monkeypatch.setattr(watch, "wait_for_change", lambda before: before)
    return ids


def test_it_moves_on_when_all_checks_pass_and_ends_after_the_last(clone, monkeypatch, capsys):
    ids = story(monkeypatch, clone, 1, 0, 0, 1, 0)
    watch.watch_lab(Console(), find_module("start"), moves_on=True)
    assert ids == ["start", "start", "2.3", "2.8", "2.8"]
    assert "Next is 2.3 KV cache." in capsys.readouterr().out


def test_a_module_that_was_named_is_watched_on(clone, monkeypatch, labs):
    ids = story(monkeypatch, clone, 1, 0)
    answer = labs("watch", "2.3")
    assert answer.code == 0  # Ctrl-C is the way to stop
    assert ids == ["2.3", "2.3", "2.3"]
    assert "Watching labs/c2/m03_kv_cache.py; Ctrl-C stops." in answer.out
