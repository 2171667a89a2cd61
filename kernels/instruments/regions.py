"""Which tensor a memory address belongs to."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor


class Region:
    """The memory of one tensor, a view with gaps included, and which of its bytes were touched."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self.tensor = tensor  # held, or its memory could become another tensor's while we count
        self.start = tensor.data_ptr()
        span = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1 if tensor.numel() else 0
        self.size = span * tensor.element_size()
        self._elements = None if tensor.is_contiguous() else _covered(tensor, span)
        self._touched: dict[str, np.ndarray] = {}

    def is_of(self, tensor: Tensor) -> bool:
        return (self.start, self.tensor.shape, self.tensor.stride()) == (tensor.data_ptr(), tensor.shape, tensor.stride())

    def holds(self, addresses: np.ndarray) -> np.ndarray:
        """addresses: uint64, any shape. True where it is that of an element of this tensor."""
        offset = addresses.astype(np.int64) - self.start
        inside = (offset >= 0) & (offset < self.size)
        if self._elements is not None and inside.any():
            inside &= self._elements[np.where(inside, offset, 0) // self.tensor.element_size()]
        return inside

    def touch(self, kind: str, addresses: np.ndarray, width: int) -> None:
        """addresses: 1-d, of elements of this tensor, `width` bytes each."""
        seen = self._touched.setdefault(kind, np.zeros(self.size + width, bool))  # a wider view may reach past the end
        offset = addresses.astype(np.int64) - self.start
        for byte in range(width):
            seen[offset + byte] = True

    def touched(self, kinds: Iterable[str]) -> int:
        """Different bytes touched by any of these kinds of access."""
        seen = [self._touched[kind] for kind in kinds if kind in self._touched]
        length = max((len(each) for each in seen), default=0)
        union = np.zeros(length, bool)
        for each in seen:
            union[: len(each)] |= each
        return int(union.sum())


class Elsewhere:
    """Memory of no known tensor, with Region's interface."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._touched: dict[str, set[int]] = {}

    def holds(self, addresses: np.ndarray) -> np.ndarray:
        return np.ones(addresses.shape, bool)

    def touch(self, kind: str, addresses: np.ndarray, width: int) -> None:
        self._touched.setdefault(kind, set()).update(
            (np.unique(addresses)[:, None] + np.arange(width, dtype=np.uint64)).ravel().tolist()
        )

    def touched(self, kinds: Iterable[str]) -> int:
        return len(set().union(*(self._touched.get(kind, set()) for kind in kinds)))


def _covered(tensor: Tensor, span: int) -> np.ndarray:
    """bool [span]: which elements between a view's first and last are its own."""
    elements = np.zeros(span, bool)  # numpy's zeros take no memory until they are written: gaps may be gigabytes
    torch.from_numpy(elements).as_strided(tensor.shape, tensor.stride()).fill_(True)
    return elements
