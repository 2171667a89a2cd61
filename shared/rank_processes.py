"""Ranks that are processes: the same small script in each, joined by gloo on this machine.

    run_rank_processes("def main(transport):\n    return transport.rank", size=2)        [0, 1]

Processes are started afresh, not forked: a fork after torch has begun its threads can hang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


class RankError(RuntimeError):
    """A rank's script failed, or did not end in time; one line."""


def run_rank_processes(
    script: str, size: int, *, timeout: float = 60, peer_timeout: float = 10, arguments: Mapping[str, Any] | None = None
) -> list[Any]:
    """main(transport, **arguments) of the script, in `size` processes at once; what each returned, through JSON.

    A rank that left without returning (os._exit(0)) gives None. timeout: seconds for everything, after which all are ended;
    peer_timeout: seconds until a silent peer counts as lost. One thread a process. Raises RankError.
    """
    with TemporaryDirectory() as folder:
        Path(folder, "script.py").write_text(script, "utf-8")
        Path(folder, "arguments.json").write_text(json.dumps(dict(arguments or {})), "utf-8")
        command = [sys.executable, "-m", "shared.rank_processes", folder]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        processes = []
        try:
            for rank in range(size):
                with open(Path(folder, f"{rank}.log"), "wb") as log:
                    rest = [str(rank), str(size), str(peer_timeout)]
                    processes.append(subprocess.Popen(command + rest, stdout=log, stderr=log, env=environment))
            _wait(processes, time.monotonic() + timeout, timeout)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        for rank, process in enumerate(processes):
            if process.returncode:
                said = Path(folder, f"{rank}.log").read_text("utf-8", errors="replace").strip().splitlines()
                raise RankError(f"rank {rank} failed: {said[-1] if said else f'exit status {process.returncode}'}")
        results = [Path(folder, f"{rank}.json") for rank in range(size)]
        return [json.loads(file.read_text("utf-8")) if file.exists() else None for file in results]


def _wait(processes: list[subprocess.Popen], deadline: float, timeout: float) -> None:
    for rank, process in enumerate(processes):
        try:
            process.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise RankError(f"rank {rank} was not done after {timeout:g} s") from None


def _run(folder: Path, rank: int, size: int, peer_timeout: float) -> None:
    import torch.distributed as dist

    from shared.gloo import GlooTransport

    transport = GlooTransport(dist.FileStore(str(folder / "store"), size), rank, size, timeout=peer_timeout)
    script = folder / "script.py"
    names: dict[str, Any] = {"__name__": "rank_script"}
    exec(compile(script.read_text("utf-8"), str(script), "exec"), names)
    result = names["main"](transport, **json.loads((folder / "arguments.json").read_text("utf-8")))
    (folder / f"{rank}.json").write_text(json.dumps(result), "utf-8")


if __name__ == "__main__":
    _run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
