"""Runs compilations in worker processes and keeps their answers on disk."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import triton

from shared.engines import engines_home

WORKER = "minillm.kernels.instruments.worker"
START_S = 60.0  # what a process may take to start, and
COMPILE_S = 120.0  # for a compilation, before it counts as hung
WORTH_A_PROCESS = 6  # compilations: starting one costs about as much

Request = Mapping[str, Any]
Progress = Callable[[int, int, str], None]  # done, in all, the kernel's name


def answers(requests: Sequence[Request], jobs: int | None = None, progress: Progress | None = None) -> list[dict[str, Any]]:
    """An answer for each of inspect.py's requests: worker.py's, or {"error": one line}. Those known already start no process."""
    keys = [_key(request) for request in requests]
    known = {key: answer for key in keys if (answer := _kept(key)) is not None}
    missing = {key: request for key, request in zip(keys, requests, strict=True) if key not in known}
    jobs = jobs or max(1, min(os.cpu_count() or 1, len(missing) // WORTH_A_PROCESS))
    shares = [list(missing.items())[i::jobs] for i in range(jobs)]
    count = len(missing)

    def compile_share(share: list[tuple[str, Request]]) -> None:
        for key, answer in _compiled(share):
            _keep(key, answer)  # at once: who loses patience keeps what is done
            known[key] = answer
            if progress:
                progress(count - len(missing.keys() - known.keys()), count, missing[key]["name"])

    with ThreadPoolExecutor(jobs) as threads:
        list(threads.map(compile_share, shares))
    return [known[key] for key in keys]


def _compiled(share: Sequence[tuple[str, Request]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """One worker's answers. If the compiler dies of one request, that is its answer, and a new worker goes on with the next."""
    share = list(share)
    while share:
        with tempfile.TemporaryFile("w+") as said:
            worker = _start([request for _, request in share], said)
            with _Patience(worker, START_S + COMPILE_S) as patience:
                for line in worker.stdout:
                    patience.renew(COMPILE_S)
                    yield share.pop(0)[0], json.loads(line)
            code = worker.wait()
            said.seek(0)
            last = (said.read().strip().splitlines() or ["it said nothing"])[-1]
        if share:
            hung = f"it did not answer within {COMPILE_S:.0f} s" if patience.lost else f"exit code {code}: {last}"
            yield share.pop(0)[0], {"error": f"the compiler died, {hung}"}


def _start(requests: Sequence[Request], said: IO[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(_home() / "triton")}
    command = [sys.executable, "-m", WORKER]
    worker = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, encoding="utf-8"
    )
    try:
        worker.stdin.write(json.dumps({"path": sys.path, "requests": requests}))
        worker.stdin.close()
    except BrokenPipeError:
        pass  # it died at once; what it said tells why
    return worker


class _Patience:
    """Kills a process that does not answer for too long, or that nobody listens to any more."""

    def __init__(self, process: subprocess.Popen, seconds: float) -> None:
        self._process = process
        self._timer = self._started(seconds)
        self.lost = False

    def renew(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self._started(seconds)

    def _started(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._lose)
        timer.daemon = True
        timer.start()
        return timer

    def _lose(self) -> None:
        self.lost = True
        self._process.kill()

    def __enter__(self) -> _Patience:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._timer.cancel()
        if failed:
            self._process.kill()


def _home() -> Path:
    return engines_home().parent / "kernels"


def _key(request: Mapping[str, Any]) -> str:
    """Of all that an answer depends on: the kernel's code, where it is, what is asked, Triton, and how worker.py asks."""
    worker = Path(__file__).with_name("worker.py").read_text("utf-8")
    return hashlib.sha256(json.dumps([request, triton.__version__, worker], sort_keys=True).encode()).hexdigest()[:32]


def _kept(key: str) -> dict[str, Any] | None:
    try:
        return json.loads(gzip.decompress((_home() / f"{key}.json.gz").read_bytes()))
    except (OSError, EOFError, ValueError):
        return None  # not there, or cut off: compile again


def _keep(key: str, answer: Mapping[str, Any]) -> None:
    """A cache that cannot be written costs time, not the answer. Errors are not kept: their cause may lie outside the kernel."""
    if "error" in answer:
        return
    try:
        _home().mkdir(parents=True, exist_ok=True)
        unfinished = _home() / f"{key}.{os.getpid()}.part"
        unfinished.write_bytes(gzip.compress(json.dumps(answer).encode(), 6))
        unfinished.replace(_home() / f"{key}.json.gz")
    except OSError:
        pass
