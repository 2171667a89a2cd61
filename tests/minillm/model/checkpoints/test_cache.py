"""A cached folder is whole or absent, whatever happens while it is built."""

import errno
import json
import os
import threading

import pytest

from minillm.errors import CheckpointError
from minillm.model.checkpoints import cache_home
from minillm.model.checkpoints.cache import MANIFEST, cached_folder


def build_one(folder):
    (folder / "data").write_text("whole")
    return {"source": "a test"}


def get(target, build=build_one, need=0):
    return cached_folder(target, build, need_bytes=lambda: need)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_home_follows_the_environment(monkeypatch, tmp_path):
    assert cache_home() == tmp_path / "home"
    monkeypatch.delenv("MINILLM_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_home() == tmp_path / "xdg" / "minillm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_home() == tmp_path / ".cache" / "minillm"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_home() == tmp_path / "Library" / "Caches" / "minillm"


def test_built_once_and_described(tmp_path):
    target = tmp_path / "cache" / "model"
    assert get(target) == target
    manifest = json.loads((target / MANIFEST).read_text())
    assert manifest["source"] == "a test" and manifest["file_bytes"] == {"data": 5}
    get(target, build=lambda _: pytest.fail("built again although it is there"))
    assert names(target.parent) == [".model.lock", "model"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_interrupted_build_leaves_nothing(tmp_path, stop):
    target = tmp_path / "cache" / "model"

    def interrupted(folder):
        (folder / "data").write_text("half")
        raise stop

    with pytest.raises(stop):
        get(target, interrupted)
    assert names(target.parent) == [".model.lock"]
    assert (get(target) / "data").read_text() == "whole"


def test_remains_of_a_killed_run_are_removed(tmp_path):
    target = tmp_path / "cache" / "model"
    stale = target.parent / ".model.tmp-killed"
    stale.mkdir(parents=True)
    (stale / "data").write_text("half")
    get(target)
    assert names(target.parent) == [".model.lock", "model"]


@pytest.mark.parametrize("damage", ["shortened", "removed", "other format", "manifest"])
def test_damaged_folder_is_built_again(tmp_path, damage):
    target = get(tmp_path / "model")
    if damage == "shortened":
        (target / "data").write_text("who")
    elif damage == "removed":
        (target / "data").unlink()
    elif damage == "other format":
        manifest = json.loads((target / MANIFEST).read_text())
        (target / MANIFEST).write_text(json.dumps(manifest | {"format": -1}))
    else:
        (target / MANIFEST).write_text("[1]")
    get(target)
    assert (target / "data").read_text() == "whole"
    assert names(tmp_path) == [".model.lock", "model"]


def test_two_at_once_build_once(tmp_path):
    started, release, builds = threading.Event(), threading.Event(), []

    def slow(folder):
        builds.append(folder)
        started.set()
        assert release.wait(30)
        return build_one(folder)

    threads = [threading.Thread(target=get, args=(tmp_path / "model", slow)) for _ in range(2)]
    threads[0].start()
    assert started.wait(30)
    threads[1].start()
    release.set()
    for thread in threads:
        thread.join(30)
    assert len(builds) == 1 and (tmp_path / "model" / "data").read_text() == "whole"


def test_waiting_for_another_process_is_said(tmp_path, caplog):
    started, release = threading.Event(), threading.Event()

    def slow(folder):
        started.set()
        assert release.wait(30)
        return build_one(folder)

    class Release(list):  # the log record itself lets the first builder go on: no sleeping, no race
        def append(self, record):
            super().append(record)
            release.set()

    caplog.handler.records = Release()
    first = threading.Thread(target=get, args=(tmp_path / "model", slow))
    first.start()
    assert started.wait(30)
    get(tmp_path / "model")
    first.join(30)
    assert "another process that is preparing model" in caplog.handler.records[0].getMessage()


def test_too_little_space_is_found_before_building(tmp_path):
    with pytest.raises(CheckpointError, match=rf"needs about 1000000000000 MB in {tmp_path}.*MINILLM_HOME"):
        get(tmp_path / "model", build=lambda _: pytest.fail("built on a full disk"), need=10**18)


def test_disk_full_halfway(tmp_path):
    def full(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CheckpointError, match="not enough disk space: model needs about 7 MB"):
        get(tmp_path / "model", full, need=7_000_000)
    assert names(tmp_path) == [".model.lock"]


def test_unwritable_cache(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"cannot prepare model.*set MINILLM_HOME"):
        get(tmp_path / "file" / "model")
