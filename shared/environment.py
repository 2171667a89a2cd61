"""The machine a number was measured on: enough to judge the number by, nothing that names a person, a host or a folder."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "numpy", "transformers", "tokenizers", "safetensors")
CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "sve", "bf16")
ROOT = Path(__file__).resolve().parent.parent


def capture() -> dict[str, Any]:
    """Plain JSON values: date (UTC), os, python, versions, commit, cpu, usable cores, memory_bytes, threads, gpus.

    Absent things are None or empty: no GPU, no git, torch not imported (threads).
    """
    torch = sys.modules.get("torch")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "os": _os_name(),
        "python": platform.python_version(),
        "versions": _versions(),
        "commit": commit(),
        "cpu": _cpu_model(),
        "cpu_features": _cpu_features(),
        "cores": usable_cores(),
        "memory_bytes": memory_bytes(),
        "threads": torch.get_num_threads() if torch else None,
        "gpus": _gpus(),
    }


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float:
    """Cores' worth of CPU time this process may use: its affinity mask, capped by the cgroup quota a container sets."""
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for folder in _cgroup_folders(cgroup, membership, "cpu") if (quota := _cpu_quota(folder))]
    return min([float(mask), *quotas])


def memory_bytes(cgroup: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of memory this process may use: what the machine has, capped by the cgroup limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = [
        folder / name
        for folder in _cgroup_folders(cgroup, membership, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    limits = [int(text) for file in files if (text := _read(file).strip()).isdigit()]
    return min([physical, *limits])


def commit(root: Path = ROOT) -> str | None:
    """The git commit that `root` is at, with "+changes" when files differ from it; None without git or in a ZIP download."""
    if not (root / ".git").exists() or not shutil.which("git"):
        return None
    head = _run("git", "-C", str(root), "rev-parse", "--verify", "--quiet", "HEAD")
    if not head:
        return None
    return head + ("+changes" if _run("git", "--no-optional-locks", "-C", str(root), "status", "--porcelain") else "")


def _cgroup_folders(cgroup: Path, membership: Path, controller: str) -> list[Path]:
    """Every folder from this process's cgroup up to the top, for version 2 and version 1: each may set a limit."""
    folders = []
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = cgroup / controllers if controllers else cgroup
        if controllers and not top.is_dir():
            top = cgroup / controller
        inner = Path(path.lstrip("/"))
        folders += [top / part for part in (inner, *inner.parents)]
    return folders


def _cpu_quota(folder: Path) -> float | None:
    """Cores granted by one cgroup: cpu.max holds "quota period" (v2), two files hold them apart (v1); microseconds."""
    words = _read(folder / "cpu.max").split() or [
        _read(folder / "cpu.cfs_quota_us").strip(),
        _read(folder / "cpu.cfs_period_us").strip(),
    ]
    if not (len(words) == 2 and all(word.isdigit() for word in words)):  # "max", -1 and absent files set no limit
        return None
    return int(words[0]) / int(words[1])


def _os_name() -> str:
    """System, major.minor kernel release and architecture; the rest of a release string can carry a builder's name."""
    version = re.match(r"\d+\.\d+", platform.release())
    wsl = " (WSL)" if "microsoft" in platform.release().lower() else ""
    return f"{platform.system()} {version[0] if version else ''} {platform.machine()}{wsl}"


def _versions() -> dict[str, str]:
    names = {name: name for name in PACKAGES} | {"minillm": "inference-engineering-lab"}
    found = {}
    for name, distribution in names.items():
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    if platform.system() == "Darwin":
        return _run("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    model = re.search(r"^model name\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    return model[1] if model else platform.processor() or platform.machine()  # ARM Linux lists no model name


def _cpu_features() -> list[str]:
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    present = set(flags[1].split()) if flags else set()
    return [feature for feature in CPU_FEATURES if feature in present]


def _gpus() -> list[dict[str, Any]]:
    """Asked of the driver's own tool, so that looking does not start CUDA in this process."""
    table = _run("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in table.splitlines()]
    return [
        # a board that shares the CPU's memory reports none of its own
        {"name": name, "memory_bytes": int(mib) * 2**20 if mib.isdigit() else None, "driver": driver}
        for name, mib, driver in rows
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _run(*command: str) -> str:
    """What a program printed; "" when it is not there, fails or hangs."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
