"""From clone to answer: seconds from `make serve` to a ready server and to its first answer, the first time and the second.

    python benchmarks/first_start.py --save results/first_start.json

Copies the project's files to a temporary folder, with no .venv and an empty model cache; needs a network. pip's download cache is
used if there is one, so on a slow line the first number is mostly the line's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from shared.environment import capture
from shared.evidence import measured
from shared.results import save

ROOT = Path(__file__).resolve().parents[1]
LEAVE_OUT = shutil.ignore_patterns(".venv", ".git", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="where to record the run, as JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(shutil.copytree(ROOT, Path(temp) / "project", ignore=LEAVE_OUT))
        environment = {**os.environ, "MINILLM_HOME": str(Path(temp) / "home")}
        times = {f"{which}_{what}": s for which in ("first", "second") for what, s in start(folder, environment).items()}
    for name, seconds in times.items():
        print(f"{name:16} {seconds:6.1f} s")
    if args.save:
        machine = capture()
        context = {"environment": machine, "checkpoint": "smollm2-135m", "dtype": "auto", "concurrency": 1}
        lengths = {"input_tokens": None, "output_tokens": 16}
        titles = {"ready": "`make serve` to a ready server", "answered": "`make serve` to the first answered chat"}
        evidence = [
            measured(f"{name}_s", s, "s", title=f"{name.split('_')[0]} time: {titles[name.split('_')[1]]}", **context, **lengths)
            for name, s in times.items()
        ]
        save(args.save, "From clone to answer", f"python benchmarks/first_start.py --save {args.save}", evidence, machine)


def start(folder: Path, environment: dict[str, str]) -> dict[str, float]:
    started = time.perf_counter()
    command = ["make", "serve", "ARGS=--port 0"]
    server = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, url = [], None
        for line in server.stdout:
            output.append(line)
            url = url or (re.search(r"API\s+(http\S+)", line) or [None, None])[1]
            if "Ctrl-C stops" in line:
                break
        else:
            raise SystemExit("make serve ended before it was ready:\n" + "".join(output[-20:]))
        ready = time.perf_counter() - started
        message = {
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 16,
            "temperature": 0,
        }
        request = urllib.request.Request(
            f"{url}/chat/completions", json.dumps(message).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            json.load(response)["choices"][0]["message"]["content"]
        return {"ready": ready, "answered": time.perf_counter() - started}
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.wait(30)


if __name__ == "__main__":
    main()
