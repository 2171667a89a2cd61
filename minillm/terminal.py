"""Talking with a model in the terminal."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from minillm.errors import RequestError
from minillm.llm import LLM
from minillm.request import RequestOutput, SamplingParams

HELP = "/reset forgets the conversation, /quit leaves, Ctrl-C stops an answer"


@contextmanager
def _interruptible() -> Iterator[list]:
    """The first Ctrl-C only leaves a mark, for the loop to stop between two engine steps; the second one raises."""
    pressed: list[int] = []

    def on_sigint(signum, frame):
        if pressed:
            raise KeyboardInterrupt
        pressed.append(signum)

    before = signal.signal(signal.SIGINT, on_sigint)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def stream_answer(llm: LLM, prompt_token_ids: list[int], params: SamplingParams) -> tuple[str, RequestOutput | None]:
    """Write the answer to standard output as it comes. Returns its text and its last output (None: stopped before any)."""
    text, last = "", None
    with _interruptible() as pressed:
        outputs = llm.stream(prompt_token_ids, params)
        try:
            for last in outputs:
                sys.stdout.write(last.text)
                sys.stdout.flush()
                text += last.text
                if pressed:
                    break
        finally:
            outputs.close()  # frees the request if it is still running
    if not text.endswith("\n"):
        sys.stdout.write("\n")
    return text, last


class Conversation:
    """A chat with memory: every turn sends all turns before it."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None = None):
        self.llm, self.params = llm, params
        self.opening = [{"role": "system", "content": system}] if system is not None else []
        self.messages = list(self.opening)
        self.console = Console(stderr=True, highlight=False)  # answers alone go to standard output

    def run(self) -> None:
        """Read lines until /quit or end of input."""
        self.console.print(f"[bold]{self.llm.engine.model_name}[/bold]  [dim]{HELP}[/dim]")
        while True:
            try:
                line = self.console.input("[bold cyan]you ›[/bold cyan] ").strip()
            except (EOFError, KeyboardInterrupt):
                self.console.print()
                return
            if line == "/quit":
                return
            if line == "/reset":
                self.messages = list(self.opening)
                self.console.print("[dim]forgotten[/dim]")
            elif line.startswith("/"):
                self.console.print(f"[dim]unknown command {escape(line.split()[0])}; {HELP}[/dim]")
            elif line:
                self._turn(line)

    def _turn(self, line: str) -> None:
        asked = [*self.messages, {"role": "user", "content": line}]
        started = time.perf_counter()
        try:
            text, last = stream_answer(self.llm, self.llm.tokenizer.encode_chat(asked), self.params)
        except RequestError as e:
            self.console.print(f"[red]{escape(str(e))}[/red]  [dim]/reset starts afresh[/dim]")
            return
        # a stopped answer stays part of the conversation: the model sees what the reader saw
        self.messages = [*asked, {"role": "assistant", "content": text}]
        if last is not None:
            seconds = time.perf_counter() - started
            why = "" if last.finished else ", stopped"
            self.console.print(
                f"[dim]{last.num_prompt_tokens} tokens in, {last.num_output_tokens} out, {seconds:.1f} s{why}[/dim]\n"
            )
