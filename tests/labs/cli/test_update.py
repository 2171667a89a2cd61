"""Bringing the newest state of the project to a learner who has written in it, with real git repositories."""

import shutil

import pytest

FILE = "labs/c2/m03_kv_cache.py"


def publish(upstream, *changes):
    """One commit of the project's: changes are (file, old, new)."""
    for name, old, new in changes:
        upstream.replace(name, old, new)
    upstream.record_stubs()
    return upstream.commit("news")


def state(folder):
    return folder.git("rev-parse", "HEAD"), folder.git("status", "--porcelain"), folder.read(FILE), folder.read("README.md")


def test_nothing_new(labs, learner):
    learner.solve()
    before = state(learner)
    answer = labs("update")
    assert (answer.code, answer.out) == (0, "up to date with origin/main\n")
    assert state(learner) == before and not (learner.root / ".labs").exists()


def test_an_uncommitted_solution_stays_uncommitted_and_whole(labs, learner, upstream):
    mine = learner.solve()
    upstream.add_lab("c2/m01_one_token", "rms_norm", "capture")
    upstream.write("pyproject.toml", "")
    new = publish(upstream, ("README.md", "one", "ONE"))
    answer = labs("update")
    assert answer.code == 0
    assert "1 new commit from origin/main" in answer.out and "new: labs/c2/m01_one_token.py" in answer.out
    assert "packages changed: run `make setup`" in answer.out and "kept yours" not in answer.out
    assert learner.git("rev-parse", "HEAD") == new  # no merge commit where none is needed
    assert learner.read(FILE) == mine and learner.read("README.md").startswith("ONE")
    assert learner.git("status", "--porcelain") == f"M {FILE}"
    (copy,) = (learner.root / ".labs/backup").glob(f"*/{FILE}")
    assert copy.read_text() == mine and str(copy.parents[2]) in answer.out


@pytest.mark.parametrize("how", ["uncommitted", "staged", "committed"])
def test_what_the_project_changed_elsewhere_in_the_stub_comes_too(labs, learner, upstream, how):
    learner.solve()
    if how == "staged":
        learner.git("add", FILE)
    if how == "committed":
        learner.commit("mine")
    publish(upstream, (FILE, 'return "helper"', 'return "better"'))
    answer = labs("update")
    assert answer.code == 0 and "kept yours" not in answer.out
    text = learner.read(FILE)
    assert "return 42" in text and 'return "better"' in text and "NotImplementedError" not in text


@pytest.mark.parametrize("how", ["uncommitted", "staged", "committed"])
def test_where_both_changed_the_same_lines_the_learners_stand(labs, learner, upstream, how):
    learner.solve()
    if how == "staged":
        learner.git("add", FILE)
    if how == "committed":
        learner.commit("mine")
    publish(upstream, (FILE, "raise NotImplementedError", 'raise NotImplementedError("2.3")'), ("README.md", "one", "ONE"))
    upstream.replace(FILE, 'return "helper"', 'return "better"')
    upstream.commit("more")
    answer = labs("update")
    assert answer.code == 0 and "2 new commits" in answer.out
    assert f"kept yours where both had changed: {FILE}" in answer.out
    text = learner.read(FILE)
    assert "return 42" in text and 'return "better"' in text and "NotImplementedError" not in text and "<<<<" not in text
    assert learner.read("README.md").startswith("ONE")
    assert learner.git("status", "--porcelain") == ("" if how == "committed" else f"M {FILE}")


def test_a_merge_that_would_not_be_python_leaves_the_learners_file_alone(labs, learner, upstream):
    mine = learner.replace(FILE, 'def helper() -> str:\n    """Not an exercise."""\n    return "helper"\n', "")
    publish(upstream, (FILE, "from labs.kit import exercise", "from labs.kit import exercise, ("))
    answer = labs("update")
    assert answer.code == 0 and f"kept yours where both had changed: {FILE}" in answer.out
    assert learner.read(FILE) == mine


def test_a_lab_that_the_project_removed_or_the_learner_removed(labs, learner, upstream):
    mine = learner.solve()
    learner.git("rm", "-q", "labs/start/m00_the_map.py")
    learner.commit("mine")
    upstream.git("rm", "-q", FILE)
    publish(upstream, ("labs/start/m00_the_map.py", "helper", "other"))
    answer = labs("update")
    assert answer.code == 0, answer.err
    assert learner.read(FILE) == mine and not (learner.root / "labs/start/m00_the_map.py").exists()


def test_an_uncommitted_solution_of_a_lab_that_the_project_removed(labs, learner, upstream):
    mine = learner.solve()
    upstream.git("rm", "-q", FILE)
    publish(upstream, ("README.md", "one", "ONE"))
    assert labs("update").code == 0
    assert learner.read(FILE) == mine and learner.read("README.md").startswith("ONE")


def test_a_conflict_elsewhere_changes_nothing(labs, learner, upstream):
    learner.replace("README.md", "one", "mine")
    learner.commit("mine")
    learner.solve()
    publish(upstream, ("README.md", "one", "ONE"), (FILE, "NotImplementedError", 'NotImplementedError("2.3")'))
    before = state(learner)
    answer = labs("update")
    assert answer.code == 1 and answer.err.count("\n") == 1
    assert "README.md: your commits and origin/main changed the same lines, so nothing was updated" in answer.err
    assert "`git merge origin/main`" in answer.err
    assert state(learner) == before
    assert learner.git("diff", "--cached", "--name-only") == ""


def test_a_changed_notebook_is_the_learners_to_decide(labs, learner, upstream):
    """Running one changes it."""
    learner.write("series/notebook.ipynb", '{"run": 1}\n')
    learner.solve()
    publish(upstream, ("README.md", "one", "ONE"))
    assert labs("update").code == 0  # the project did not touch it
    assert learner.read("series/notebook.ipynb") == '{"run": 1}\n'
    publish(upstream, ("series/notebook.ipynb", "{}", '{"new": 1}'))
    before = state(learner)
    answer = labs("update")
    assert answer.code == 1 and "`git restore series/notebook.ipynb`" in answer.err
    assert state(learner) == before
    learner.git("restore", "series/notebook.ipynb")
    assert labs("update").code == 0 and "new" in learner.read("series/notebook.ipynb")


def test_files_in_the_way(labs, learner, upstream):
    publish(upstream, ("README.md", "one", "ONE"))
    upstream.write("notes.md", "theirs")
    upstream.commit()
    learner.write("notes.md", "mine")
    answer = labs("update")
    assert answer.code == 1 and "notes.md: origin/main brings a file of that name; move yours elsewhere" in answer.err
    learner.git("add", "notes.md")
    assert "notes.md: changed by you and by origin/main" in labs("update").err
    learner.git("mv", "notes.md", "my_notes.md", "-f")
    answer = labs("update")
    assert answer.code == 1 and "my_notes.md: staged and not committed" in answer.err
    learner.git("restore", "--staged", ".")
    assert labs("update").code == 0 and learner.read("notes.md") == "theirs" and learner.read("my_notes.md") == "mine"


def test_upstream_goes_before_origin(labs, learner, upstream, tmp_path):
    upstream.git("clone", "-q", "--bare", str(upstream.root), str(tmp_path / "fork"))
    learner.git("remote", "set-url", "origin", str(tmp_path / "fork"))
    publish(upstream, ("README.md", "one", "ONE"))
    assert labs("update").out == "up to date with origin/main\n"
    learner.git("remote", "add", "upstream", str(upstream.root))
    assert "1 new commit from upstream/main" in labs("update").out


def test_the_projects_default_branch_counts_wherever_the_learner_is(labs, learner, upstream):
    learner.git("switch", "-q", "-c", "solutions")
    upstream.git("branch", "-m", "main", "trunk")
    publish(upstream, ("README.md", "one", "ONE"))
    assert "from origin/trunk" in labs("update").out
    assert learner.git("branch", "--show-current") == "solutions"


def test_what_cannot_be_updated_says_why_and_how(labs, learner, upstream, tmp_path):
    mine = learner.solve()
    shutil.move(upstream.root, tmp_path / "gone")
    answer = labs("update")
    assert answer.code == 1 and "cannot fetch from origin" in answer.err and "check the network" in answer.err
    learner.git("remote", "remove", "origin")
    assert "knows no remote; `git remote add upstream URL`" in labs("update").err
    learner.git("checkout", "-q", "--detach")
    assert "you are on no branch; `git switch main`" in labs("update").err
    assert learner.read(FILE) == mine


def test_an_unfinished_merge_is_not_touched(labs, learner, upstream):
    learner.replace("README.md", "one", "mine")
    learner.commit("mine")
    publish(upstream, ("README.md", "one", "ONE"))
    learner.git("fetch", "-q")
    with pytest.raises(AssertionError):
        learner.git("merge", "-q", "origin/main")
    before = state(learner)
    answer = labs("update")
    assert answer.code == 1 and "a merge is under way; finish it with `git merge --continue`" in answer.err
    assert state(learner) == before


def test_a_zip_download_cannot_be_updated(labs, clone):
    answer = labs("update")
    assert answer.code == 1 and "is no git clone (a ZIP download?)" in answer.err


def test_a_git_that_does_not_know_the_learner(labs, learner, upstream, monkeypatch):
    mine = learner.solve()
    learner.commit("mine")
    publish(upstream, ("README.md", "one", "ONE"))
    before = state(learner)
    learner.git("config", "user.useConfigOnly", "true")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    answer = labs("update")
    assert answer.code == 1 and "git config user.name" in answer.err
    assert state(learner) == before and learner.read(FILE) == mine


def test_a_hook_that_refuses_the_merge_undoes_it(labs, learner, upstream):
    learner.solve()
    learner.commit("mine")
    publish(upstream, (FILE, "raise NotImplementedError", 'raise NotImplementedError("2.3")'))
    before = state(learner)
    learner.write(".git/hooks/commit-msg", "#!/bin/sh\nexit 1\n")
    (learner.root / ".git/hooks/commit-msg").chmod(0o755)
    assert labs("update").code == 1
    assert state(learner) == before
