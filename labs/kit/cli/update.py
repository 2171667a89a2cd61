"""The newest state of the project merged into a learner's clone, with every solution kept.

Everything or nothing: where git and these rules cannot agree on all files, the clone is left as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from labs.kit.blobs import blob_id
from labs.kit.catalog import is_lab_file
from labs.kit.cli.backup import back_up
from labs.kit.cli.git import GitFailed, Repository
from labs.kit.cli.merge import combine, content_at, resolve
from labs.kit.cli.reset import pristine_ids
from labs.kit.errors import LabError

PACKAGES = {"pyproject.toml", "constraints.txt"}


@dataclass(frozen=True)
class Outcome:
    """What an update did. Paths are relative to the repository's root."""

    source: str  # "upstream/main"
    commits: int  # that came; 0: there was nothing new
    new: tuple[str, ...] = ()  # exercise files that were not there before
    kept: tuple[str, ...] = ()  # exercise files of which a change of theirs was left out, because the learner's stands there
    backup: Path | None = None
    packages_changed: bool = False


def update(labs: Path) -> Outcome:
    """Fetch and merge from the remote `upstream`, or `origin` where there is none. Raises LabError; nothing is changed then."""
    repository = Repository.at(labs.parent)
    _require_calm(repository)
    source, theirs = _fetch(repository)
    commits = int(repository.out("rev-list", "--count", f"HEAD..{theirs}"))
    if commits == 0:
        return Outcome(source, 0)
    if repository.run("merge-base", "HEAD", theirs).returncode:
        raise LabError(f"this clone and {source} share no history (a shallow clone?); `git fetch --unshallow`, then again")
    incoming = set(repository.names("diff", "--name-only", "--no-renames", "-z", f"HEAD...{theirs}"))
    before = set(_lab_files(repository))
    set_aside = _set_aside(repository, incoming, source)
    backup = back_up(_edited(repository, before, labs), repository.root)
    kept = []
    with _uncommitted_kept(repository, set_aside, kept):
        kept += _merge(repository, source, theirs, backup)
    new = tuple(name for name in _lab_files(repository) if name not in before)
    return Outcome(source, commits, new, tuple(sorted(set(kept))), backup, bool(incoming & PACKAGES))


def _require_calm(repository: Repository) -> None:
    for head, what in (("MERGE_HEAD", "merge"), ("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert")):
        if repository.run("rev-parse", "-q", "--verify", head).returncode == 0:
            raise LabError(f"a {what} is under way; finish it with `git {what} --continue`, or undo it with `git {what} --abort`")
    for folder in ("rebase-merge", "rebase-apply"):
        if (repository.root / repository.out("rev-parse", "--git-path", folder)).exists():
            raise LabError("a rebase is under way; finish it with `git rebase --continue`, or undo it with `git rebase --abort`")
    if repository.run("symbolic-ref", "-q", "HEAD").returncode:
        raise LabError("you are on no branch; `git switch main` (or `git switch -c mine` to keep what you have), then again")


def _fetch(repository: Repository) -> tuple[str, str]:
    """("upstream/main", its commit), brought here."""
    remotes = repository.out("remote").split()
    remote = next((name for name in ("upstream", "origin") if name in remotes), None)
    if remote is None:
        raise LabError("this clone knows no remote; `git remote add upstream URL` with the project's address, then again")
    try:
        head = repository.out("ls-remote", "--symref", remote, "HEAD")
        branch = next(
            (line.split()[1].removeprefix("refs/heads/") for line in head.splitlines() if line.startswith("ref:")), None
        )
        if branch is None:
            raise LabError(f"{remote} has no default branch to update from; see `git remote show {remote}`")
        repository.bytes("fetch", "-q", remote, branch)
    except GitFailed as e:
        raise LabError(f"cannot fetch from {remote} ({e}); check the network, or try `git fetch {remote}` by hand") from e
    return f"{remote}/{branch}", repository.out("rev-parse", "FETCH_HEAD")


def _set_aside(repository: Repository, incoming: set[str], source: str) -> list[str]:
    """Exercise files with uncommitted changes that git would stumble over. Raises LabError for any other such file."""
    staged = set(repository.names("diff", "--cached", "--name-only", "--no-renames", "-z", "HEAD"))
    changed = set(repository.names("diff", "--name-only", "--no-renames", "-z", "HEAD"))
    untracked = set(repository.names("ls-files", "--others", "--exclude-standard", "-z"))
    if both := sorted(name for name in changed & incoming if not _is_exercise(name)):
        raise LabError(
            f"{_listed(both)}: changed by you and by {source}, and not committed; "
            f"drop yours with `git restore {both[0]}` or keep it with `git commit`, then again"
        )
    if both := sorted(untracked & incoming):
        raise LabError(f"{_listed(both)}: {source} brings a file of that name; move yours elsewhere, then again")
    if begun := sorted(name for name in staged if not _is_exercise(name)):
        raise LabError(f"{_listed(begun)}: staged and not committed; `git commit` or `git restore --staged .`, then again")
    return sorted(name for name in staged | (changed & incoming) if _is_exercise(name))


def _edited(repository: Repository, names: Iterable[str], labs: Path) -> list[Path]:
    """Exercise files that are not as they were written: those a backup must hold."""
    try:
        originals = pristine_ids(labs)
    except LabError:
        originals = {}  # then every one is copied: better too many than one too few
    files = [repository.root / name for name in sorted(names) if (repository.root / name).is_file()]
    return [file for file in files if originals.get(f"{file.parent.name}/{file.stem}") != blob_id(file)]


@contextmanager
def _uncommitted_kept(repository: Repository, names: list[str], kept: list[str]) -> Iterator[None]:
    """Files put back to HEAD while git merges; afterwards the learner's version again, with what the merge brought to it."""
    mine = {name: (repository.root / name).read_bytes() for name in names if (repository.root / name).is_file()}
    base = {name: content_at(repository, "HEAD", name) for name in names}
    result = dict(mine)
    try:
        for name in names:
            if base[name] is not None:
                repository.bytes("checkout", "-q", "HEAD", "--", name)
            else:  # new and staged: HEAD has nothing to go back to
                repository.bytes("rm", "-q", "--cached", "--", name)
                (repository.root / name).unlink(missing_ok=True)
        yield
        for name, content in mine.items():
            file = repository.root / name
            if base[name] is None or not file.is_file():
                kept += [name] * file.is_file()
            else:
                result[name], left_out = combine(repository, content, base[name], file.read_bytes())
                kept += [name] * left_out
    finally:
        for name, content in result.items():
            (repository.root / name).parent.mkdir(parents=True, exist_ok=True)
            (repository.root / name).write_bytes(content)


def _merge(repository: Repository, source: str, theirs: str, backup: Path | None) -> list[str]:
    """Merge and commit; the exercise files on which both sides had changed the same lines. Raises LabError, all undone."""
    done = repository.run("merge", "-q", "--ff", "--no-edit", "-m", f"Update from {source}", theirs)
    if done.returncode == 0:
        return []
    try:
        unmerged = repository.names("diff", "--name-only", "--diff-filter=U", "-z")
        if not unmerged:
            raise GitFailed(_without_conflict(done.stderr.decode("utf-8", "replace"), source))
        if others := [name for name in unmerged if not _is_exercise(name)]:
            where = f" (your exercises are copied to {backup})" if backup else ""
            raise LabError(
                f"{_listed(others)}: your commits and {source} changed the same lines, so nothing was updated{where}; "
                f"`git merge {source}`, settle these files by hand, `git add` them, `git commit`"
            )
        for name in unmerged:
            resolve(repository, name)
        repository.bytes("commit", "-q", "--no-edit")
    except BaseException:
        repository.run("merge", "--abort")
        raise
    return unmerged


def _without_conflict(message: str, source: str) -> str:
    if "identity" in message or "user.email" in message:
        return (
            "git does not know who you are, and a merge is signed; "
            '`git config user.name "Your name"` and `git config user.email you@example.org`, then again'
        )
    reason = " ".join(message.split()) or "it gave no reason"
    return f"git could not merge {source} ({reason[:300]}); nothing was changed; `git merge {source}` shows all of it"


def _lab_files(repository: Repository) -> list[str]:
    return [name for name in repository.names("ls-files", "-z", "--", "labs") if _is_exercise(name)]


def _is_exercise(name: str) -> bool:
    path = PurePosixPath(name)
    return len(path.parts) == 3 and path.parts[0] == "labs" and is_lab_file(Path(name))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
