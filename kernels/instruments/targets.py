"""GPUs that kernels are compiled for, by the names of shared/hardware.toml and by architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {
        "rtx-3090": "sm_86",
        "rtx-4090": "sm_89",
        "rtx-5090": "sm_120",
        "a10g": "sm_86",
        "l4": "sm_89",
        "l40s": "sm_89",
        "a100-40-sxm": "sm_80",
        "a100-80-sxm": "sm_80",
        "h100-pcie": "sm_90",
        "h100-nvl": "sm_90",
        "h100-sxm": "sm_90",
        "h200": "sm_90",
        "b200": "sm_100",
        "gb200": "sm_100",
        "mi300x": "gfx942",
        "mi325x": "gfx942",
        "mi355x": "gfx950",
    }
)


@dataclass(frozen=True)
class Target:
    """backend: "cuda" or "hip"; arch: "sm_90", "gfx942"; capability: 90, or None on AMD; warp: threads."""

    backend: str
    arch: str
    capability: int | None
    warp: int

    @property
    def compute_capability(self) -> str | None:
        """As NVIDIA writes it: "9.0"."""
        return None if self.capability is None else f"{self.capability // 10}.{self.capability % 10}"


def target(gpu: str) -> Target:
    """The target of a GPU's name ("rtx-4090") or architecture ("sm_89", "gfx942"). Raises ValueError for neither."""
    arch = ARCHITECTURES.get(gpu, gpu)
    if match := re.fullmatch(r"sm_(\d{2,3})", arch):
        return Target("cuda", arch, int(match[1]), 32)
    if re.fullmatch(r"gfx9[0-9a-f]{2}", arch):
        return Target("hip", arch, None, 64)
    known = ", ".join(ARCHITECTURES)
    raise ValueError(f"there is no GPU {gpu!r}; name an architecture such as sm_89 or gfx942, or one of {known}")
