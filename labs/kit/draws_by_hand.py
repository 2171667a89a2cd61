"""The oracle of module 5.7's checks: a draw from its definition, in float64, by sorting, with a Philox that is not Triton's."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.kit.sampling_by_hand import philox_in_numpy


def keys(rows: int, seed: int = 0) -> dict[str, Tensor]:
    """Seeds of 64 bits, positions some of which pass 32, indices: [rows] int64 each."""
    generator = torch.Generator().manual_seed(seed)
    seeds = torch.randint(-(2**63), 2**63 - 1, (rows,), generator=generator)
    near, far = (torch.randint(low, high, (rows,), generator=generator) for low, high in ((0, 5000), (2**32, 2**40)))
    positions = torch.where(torch.arange(rows) % 5 == 3, far, near)
    return {"seed": seeds, "position": positions, "index": torch.arange(rows) % 3}


def uniforms(seed: Tensor, position: Tensor, index: Tensor) -> Tensor:
    """[B] float64, from a Philox that is not Triton's."""
    mask, found = 0xFFFFFFFF, []
    for s, p, n in zip(seed.tolist(), position.tolist(), index.tolist(), strict=True):
        first, second, *_ = philox_in_numpy((p & mask, p >> 32 & mask, n & mask, 0), (s & mask, s >> 32 & mask))
        found.append((first << 32 | second) >> 11)
    return torch.tensor(found, dtype=torch.float64) * 2.0**-53


def settings(rows: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> dict[str, Tensor]:
    """The same parameters for each row, as sample takes them."""
    return {
        "temperature": torch.full((rows,), temperature, dtype=torch.float32),
        "top_k": torch.full((rows,), top_k),
        "top_p": torch.full((rows,), top_p, dtype=torch.float64),
        "min_p": torch.full((rows,), min_p, dtype=torch.float32),
    }


def expected_token(x: Tensor, u: float | Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> tuple[int, float]:
    """(token of one row [V], distance to the nearest border between two outcomes)."""
    x = x.double()
    w = ((x - x.max()) / temperature).exp()
    distances = [1.0]
    if 0 < top_k < len(x):
        w[x < x.topk(top_k).values[-1]] = 0
    if min_p:
        distances.append(float((w[w > 0] / min_p - 1).abs().min()))
        w[w < min_p] = 0
    if top_p < 1:
        descending, order = w.sort(descending=True, stable=True)
        before = descending.cumsum(0) - descending
        inside = before < top_p * w.sum()
        distances.append(float((before[descending > 0] / w.sum() - top_p).abs().min()))
        w[order[~inside]] = 0
    share = w.cumsum(0) / w.sum()
    distances.append(float((share[w > 0] - u).abs().min()))
    return int(torch.searchsorted(share, u, right=True).clamp_max(len(x) - 1)), min(distances)
