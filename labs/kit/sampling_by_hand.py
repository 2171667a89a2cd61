"""The oracles of module 2.6's checks: transformers' filters, Philox in numpy, and a sum in a stated order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


def transformers_distribution(
    logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Tensor:
    """What transformers draws from, its processors put in vLLM's order."""
    steps = LogitsProcessorList([TemperatureLogitsWarper(float(temperature))])
    if min_p:
        steps.append(MinPLogitsWarper(min_p))
    if top_k:
        steps.append(TopKLogitsWarper(min(top_k, len(logits))))
    if top_p < 1:
        steps.append(TopPLogitsWarper(top_p))
    return torch.softmax(steps(None, logits[None].clone()), -1)[0]


def philox_in_numpy(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """Ten rounds of Philox-4x32, on numpy's unsigned words, which wrap around by themselves."""
    low, high = np.array(counter, dtype=np.uint64), np.array(key, dtype=np.uint32)
    for _ in range(10):
        p0, p1 = low[0] * np.uint64(0xD2511F53), low[2] * np.uint64(0xCD9E8D57)
        words = [p1 >> np.uint64(32) ^ low[1] ^ high[0], p1, p0 >> np.uint64(32) ^ low[3] ^ high[1], p0]
        low = np.array(words, dtype=np.uint64) & np.uint64(0xFFFFFFFF)
        high = high + np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint32)
    return low.tolist()


def in_stated_order(x: Tensor, weight: Tensor, split: int) -> Tensor:
    """The contract in numpy's float32, one number at a time."""
    out = np.zeros((len(x), len(weight)), dtype=np.float32)
    for t, row in enumerate(x.float().numpy()):
        for n, column in enumerate(weight.float().numpy()):
            total = np.float32(0)
            for start in range(0, len(row), split):
                part = np.float32(0)
                for k in range(start, min(start + split, len(row))):
                    part = part + row[k] * column[k]
                total = total + part
            out[t, n] = total
    return torch.from_numpy(out).to(x.dtype)
