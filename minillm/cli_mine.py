"""--mine: run with one's own parts. One option for every command that runs a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from minillm.cli_options import PANEL, log_to_stderr
from minillm.errors import ConfigError
from minillm.mine.choose import ALL, Mine, parse_mine
from minillm.parts import PARTS

MineOption = Annotated[
    str | None,
    typer.Option(
        metavar="[PARTS]",
        help="Run your own parts: all whose lab passes its checks, or those named, such as --mine=kv.contiguous,text.stop.",
        rich_help_panel=PANEL,
    ),
]


def read_mine(value: str | None) -> Mine:
    """What LLM and choose are to be given; from here on the log says on stderr what comes of it."""
    if value is not None:
        log_to_stderr("minillm.mine")
    return parse_mine(value)


def complete_mine(args: Sequence[str]) -> list[str]:
    """Command-line words in which each --mine has a value: "all" where it stands alone.

    typer has no option whose value may be left out. The word after --mine is its value if it looks like a part's name:
    in `--mine smollm2-135m` it is the model. Raises ConfigError for a word that can be neither.
    """
    done: list[str] = []
    for i, word in enumerate(args):
        following = args[i + 1] if i + 1 < len(args) else ""
        if word != "--mine" or _is_value(following):
            done.append(word)
            continue
        if following and not following.startswith("-") and not _may_be_model(following):
            raise ConfigError(
                f"--mine {following}: there is no part {following!r} (`minillm parts` lists them), and no such model either; "
                "--mine alone takes all your parts, its value is written as --mine=PARTS"
            )
        done.append(f"{word}={ALL}")
    return done


def _is_value(word: str) -> bool:
    slots = {part.slot for part in PARTS.values()}
    return word == ALL or "," in word or (word.partition(".")[0] in slots and "." in word)


def _may_be_model(word: str) -> bool:
    """A path, an id of the hub, or a name such as smollm2-135m: models have a digit in theirs, parts have none."""
    return "/" in word or any(map(str.isdigit, word)) or Path(word).exists()
