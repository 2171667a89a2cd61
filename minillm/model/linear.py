"""A linear layer whose weight may be stored in another form than it is loaded in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LinearMethod(Protocol):
    """How the matrix of a linear layer is stored, and how it is multiplied by."""

    def pack(self, weight: Tensor) -> dict[str, Tensor]:
        """weight [N, K] as the checkpoint has it, in the model's dtype. Returns the tensors that take its place, by name;
        each becomes a parameter of the layer."""
        ...

    def apply(self, x: Tensor, layer: Linear) -> Tensor:
        """x [T, K] to x·Wᵀ + bias [T, N], reading what `pack` left on the layer."""
        ...

    def dense(self, layer: Linear) -> Tensor:
        """W [N, K] in the model's dtype: the layer's own memory where it is stored so, else written out."""
        ...


class Unquantized:
    """The weight as it was loaded."""

    def pack(self, weight: Tensor) -> dict[str, Tensor]:
        return {"weight": weight}

    def apply(self, x: Tensor, layer: Linear) -> Tensor:
        return F.linear(x, layer.weight, layer.bias)

    def dense(self, layer: Linear) -> Tensor:
        return layer.weight


class Linear(nn.Module):
    """x·Wᵀ + bias. The weight is uninitialised until rows() have filled all of it; at that moment it is packed.

    So while a model streams in, at most one matrix is held in both forms.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, method: LinearMethod, factory: dict):
        super().__init__()
        self.in_features, self.out_features, self.method = in_features, out_features, method
        self.weight = nn.Parameter(torch.empty(out_features, in_features, **factory), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(out_features, **factory), requires_grad=False) if bias else None
        self._rows_missing = out_features

    def forward(self, x: Tensor) -> Tensor:
        return self.method.apply(x, self)

    def rows(self, sizes: Iterable[int]) -> list[Rows]:
        """Places for the checkpoint tensors that, one under the other, make up the weight."""
        places, start = [], 0
        for size in sizes:
            places.append(Rows(self, start, start + size))
            start += size
        return places

    def note_loaded(self, num_rows: int) -> None:
        self._rows_missing -= num_rows
        if self._rows_missing == 0:
            weight = self.weight.detach()
            del self.weight
            for name, tensor in self.method.pack(weight).items():
                self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))


class Rows:
    """Some rows of a Linear's weight, as a place that a checkpoint tensor can be copied to."""

    def __init__(self, layer: Linear, start: int, stop: int):
        self.layer, self.start, self.stop = layer, start, stop

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.stop - self.start, self.layer.in_features))

    def copy_(self, tensor: Tensor) -> None:
        self.layer.weight.detach()[self.start : self.stop].copy_(tensor)
        self.layer.note_loaded(self.stop - self.start)
