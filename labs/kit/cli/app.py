"""The commands themselves, each short: what it does lies in a file named after it. Of them only doctor imports torch."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Annotated

import typer
from rich.console import Console

from labs.kit.catalog import LabModule, labs_root
from labs.kit.cli.choose import choose_exercise, choose_module, choose_modules, current_module, require_readable
from labs.kit.cli.overview import look
from labs.kit.cli.show import show_next, show_series, show_status
from labs.kit.errors import LabError
from labs.kit.progress import Progress
from labs.kit.state import State, state_of
from shared.course import CourseError, load_course

app = typer.Typer(
    help="The exercises of the course: where you are, what is next, checks and hints.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

ModuleName = Annotated[str, typer.Argument(metavar="MODULE", help="An id such as 2.3, start, or the path of its file.")]
MaybeModule = Annotated[str | None, typer.Argument(metavar="[MODULE]", help="Default: the one `labs next` names.")]
ExerciseName = Annotated[str | None, typer.Argument(metavar="[EXERCISE]", help="Default: the first that does not pass.")]


def main() -> None:
    """Entry point: an error meant for the user is one line on stderr and exit code 1; wrong usage is 2."""
    try:
        app()
    except (LabError, CourseError) as e:
        typer.echo(f"error: {e}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _console() -> Console:
    return Console(highlight=False)


@app.callback()
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        show_status(_console(), look(), everything=False)


@app.command()
def status(
    series: Annotated[str | None, typer.Argument(metavar="[SERIES]", help="c1 to c8: every module of that series; map.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every exercise there is, not only those begun.")] = False,
) -> None:
    """Where you are: a bar for each series, and what comes next."""
    overview = look()
    if series is None:
        show_status(_console(), overview, everything)
        return
    if series.lower() in ("map", *(row.module.id for row in overview.rows_of(None))):
        show_series(_console(), overview, None)
        return
    wanted = [one for one in overview.course.series if series.lower() in (one.id, one.id[1:], one.folder)]
    if not wanted:
        raise LabError(f"there is no series {series!r}; there are {', '.join(one.id for one in overview.course.series)}")
    show_series(_console(), overview, wanted[0])


@app.command("next")
def next_() -> None:
    """The next thing to do, with its commands."""
    show_next(_console(), look())


@app.command()
def check(
    modules: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE]...", help="An id, a path, or a whole series such as c2. Default: what `labs next` names."
        ),
    ] = None,
    solutions: Annotated[bool, typer.Option("--solutions", help="Check the references instead of your file.")] = False,
) -> None:
    """Check your answers; the same as `pytest labs/...`."""
    from labs.kit.check import run_checks

    chosen = [lab for asked in modules for lab in choose_modules(asked)] if modules else [current_module()]
    if run_checks(chosen, solutions=solutions):
        raise typer.Exit(1)


@app.command()
def watch(module: MaybeModule = None) -> None:
    """Check again whenever you save. Without a module it goes on to the next one when all checks pass. Ctrl-C stops."""
    from labs.kit.cli.watch import watch_lab

    with suppress(KeyboardInterrupt):
        watch_lab(_console(), choose_module(module) if module else current_module(), moves_on=module is None)


@app.command()
def hint(module: MaybeModule = None, exercise: ExerciseName = None) -> None:
    """One more hint each time, three in all."""
    from labs.kit.hints import hints_of

    lab = choose_module(module) if module else current_module()
    chosen, progress = choose_exercise(lab, exercise), Progress.load()
    state = state_of(chosen, progress)
    if exercise is None and state in (State.PASSING, State.CHANGED):
        typer.echo(_nothing_to_hint_at(lab, state))
        return
    hints = hints_of(chosen)
    if not hints:
        raise LabError(f"there are no hints for {chosen.name} in {chosen.hints_file.parent.name}/hints.toml; please report it")
    console = _console()
    is_new = progress.hints_shown(chosen.key) < len(hints)
    shown = progress.show_hint(chosen.key) if is_new else len(hints)
    progress.save()
    console.print(f"{lab.id} {chosen.name}", style="bold")
    for number, text in enumerate(hints[:shown], 1):
        console.print(f"\n{number} of {len(hints)}  {text}", style="dim" if number < shown else None, markup=False)
    if not is_new:
        flag = "" if state is State.PASSING else " --give-up"
        console.print(f"\nThat is all of them. `labs solution {lab.id} {chosen.name}{flag}` shows the reference.")


def _nothing_to_hint_at(lab: LabModule, state: State) -> str:
    if state is State.CHANGED:
        return f"{lab.id}: what you wrote {state}; `labs check {lab.id}` tells whether it still does"
    return f"{lab.id}: all pass; `labs solution {lab.id}` shows the engine's own code, `labs next` what comes next"


@app.command()
def solution(
    module: ModuleName,
    exercise: Annotated[str | None, typer.Argument(metavar="[EXERCISE]", help="Default: all of the module.")] = None,
    give_up: Annotated[bool, typer.Option("--give-up", help="Show it although your own does not pass yet.")] = False,
) -> None:
    """The engine's own code for an exercise, once yours passes."""
    from labs.kit.cli.solution import solution_of

    lab = choose_module(module)
    require_readable(lab)
    wanted = [choose_exercise(lab, exercise)] if exercise else list(lab.exercises)
    progress = Progress.load()
    shut = [one for one in wanted if not give_up and state_of(one, progress) is not State.PASSING]
    if len(shut) == len(wanted):
        names = ", ".join(one.name for one in shut)
        if any(state_of(one, progress) is State.CHANGED for one in shut):
            raise LabError(f"{lab.id} {names}: {State.CHANGED}; `labs check {lab.id}` first, or --give-up shows it all the same")
        raise LabError(f"{lab.id} {names}: not passing yet; `labs hint {lab.id}` helps, --give-up shows it all the same")
    console = _console()
    for one in wanted:
        if one in shut:
            console.print(f"# {one.name} is shown when yours passes, or with --give-up\n")
            continue
        found = solution_of(one)
        console.print(f"# {found.where}", style="dim", soft_wrap=True)
        if console.is_terminal:
            from rich.syntax import Syntax

            console.print(Syntax(found.source, "python", background_color="default", word_wrap=True))
        else:
            typer.echo(found.source)
        typer.echo()


@app.command()
def reset(
    module: ModuleName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Bring an exercise file back as it was; yours is kept in .labs/backup/."""
    from labs.kit.cli.reset import original_of, put_back

    lab = choose_module(module)
    original = original_of(lab)
    if original is None:
        typer.echo(f"labs/{lab.path}.py is as it was; there is nothing to reset")
        return
    if not yes:
        typer.confirm(f"Replace labs/{lab.path}.py by the original? Yours is kept in .labs/backup/", abort=True)
    typer.echo(f"labs/{lab.path}.py is the original again; yours is in {put_back(lab, original)}")


@app.command()
def update() -> None:
    """Bring the newest state of the project, and keep your solutions."""
    from labs.kit.cli.update import update as bring

    done = bring(labs_root())
    if not done.commits:
        typer.echo(f"up to date with {done.source}")
        return
    typer.echo(f"{done.commits} new commit{'s' * (done.commits > 1)} from {done.source}")
    for name in done.new:
        typer.echo(f"new: {name}")
    for name in done.kept:
        typer.echo(f"kept yours where both had changed: {name}")
    if done.backup:
        typer.echo(f"your files as they were: {done.backup}")
    if done.packages_changed:
        typer.echo("packages changed: run `make setup`")
    typer.echo("`labs status` shows where you are now")


@app.command("open")
def open_(module: MaybeModule = None) -> None:
    """Open a module's notebook in Jupyter."""
    course = load_course()
    if module is None:
        wanted = course.module(current_module().id)
    else:
        try:
            wanted = course.module(module)
        except CourseError:
            wanted = course.module(choose_module(module).id)
    notebook = labs_root().parent / wanted.notebook
    if not notebook.is_file():
        raise LabError(f"{wanted.id} {wanted.title} has no notebook yet ({wanted.notebook}); `labs update` brings new ones")
    if find_spec("jupyterlab") is None:
        raise LabError("Jupyter is not installed here; `make setup`, then `. .venv/bin/activate`")
    code = subprocess.run([sys.executable, "-m", "jupyterlab", str(notebook)], check=False).returncode
    if code:
        raise LabError(f"Jupyter stopped with exit status {code}; its own messages are above")


@app.command()
def doctor() -> None:
    """Whether this machine is fit for the course, line by line, each with its remedy."""
    from labs.kit.cli.doctor import Level, examine

    console, marks = _console(), {Level.OK: "green", Level.NOTE: "dim", Level.WARN: "yellow", Level.MISSING: "red"}
    missing = 0
    for finding in examine():
        console.print(f"[{marks[finding.level]}]{finding.level:7}[/] {finding.what:11} ", end="")
        console.print(finding.found, markup=False, soft_wrap=True)
        if finding.remedy:
            console.print(f"{'':19} {finding.remedy}", style="dim", markup=False, soft_wrap=True)
        missing += finding.level is Level.MISSING
    if missing:
        raise LabError("something that the exercises need is missing; the lines marked `missing` say how to get it")
