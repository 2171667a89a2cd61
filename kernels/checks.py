"""What every launcher checks before a kernel starts. A kernel itself checks nothing: a wrong stride or an offset past 2³¹ would
read someone else's memory without a word.

TypeError where the kind of thing is wrong (no tensor, a dtype that the kernel has no code for), ValueError for the rest; one line
with the cause and the way out. What is as it should be is told apart first and cheaply: outside a CUDA graph, each of these
microseconds is paid before every launch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from minillm.kernels.runtime import INTERPRETED
from torch import Tensor

FLOATS: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16, torch.float32)
INDICES: tuple[torch.dtype, ...] = (torch.int64, torch.int32)
INT32_LIMIT = 2**31


def require(condition: bool, message: str) -> None:
    """ValueError(message) unless the condition holds."""
    if not condition:
        raise ValueError(message)


def check_tensors(dtypes: Sequence[torch.dtype] = FLOATS, /, **tensors: Tensor) -> None:
    """Tensors of one of `dtypes`, all on one device, and that a device on which a kernel can run now.

    A kernel is launched on the current GPU: with tensors of another one, it would fault there.
    """
    first_name, device = "", None
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(tensor).__name__}")
        if tensor.dtype not in dtypes:
            allowed = ", ".join(_short(dtype) for dtype in dtypes)
            raise TypeError(f"{name} is {_short(tensor.dtype)}; this kernel takes {allowed}: convert it with {name}.to(...)")
        if device is None:
            first_name, device = name, tensor.device
            _check_device(name, tensor)
        elif tensor.device != device:
            raise ValueError(f"{name} is on {tensor.device}, {first_name} on {device}: move them to one device")


def check_same_dtype(**tensors: Tensor) -> None:
    """TypeError unless all have the dtype of the first."""
    (first_name, first), *others = tensors.items()
    for name, tensor in others:
        if tensor.dtype != first.dtype:
            raise TypeError(
                f"{name} is {_short(tensor.dtype)}, {first_name} {_short(first.dtype)}: they must agree; use {name}.to(...)"
            )


def check_shape(expected: Sequence[int | None], **tensors: Tensor) -> None:
    """ValueError unless every tensor has this shape; None stands for any length."""
    for name, tensor in tensors.items():
        shape = tensor.shape
        if shape == expected:
            continue
        if len(shape) != len(expected) or any(e is not None and e != n for e, n in zip(expected, shape, strict=True)):
            wanted = ", ".join("any" if e is None else str(e) for e in expected)
            raise ValueError(f"{name} has shape {list(tensor.shape)}; [{wanted}] is needed")


def check_last_dim_contiguous(**tensors: Tensor) -> None:
    """ValueError unless neighbours in the last dimension are neighbours in memory, without which no load is 128 bits wide."""
    for name, tensor in tensors.items():
        if tensor.stride(-1) != 1 and tensor.shape[-1] > 1 and tensor.numel():
            raise ValueError(f"{name} has stride {tensor.stride(-1)} in its last dimension, not 1: pass {name}.contiguous()")


def refuse_negative_strides(**tensors: Tensor) -> None:
    """ValueError for memory that runs backwards, and for a tensor whose sign flip torch has only noted down (Tensor.is_neg).

    torch makes no negative strides itself, but other libraries' arrays have them; kernels would step out of the allocation.
    """
    for name, tensor in tensors.items():
        if min(tensor.stride(), default=0) < 0:
            raise ValueError(f"{name} has a negative stride {tuple(tensor.stride())}: pass {name}.contiguous()")
        if tensor.is_neg():
            raise ValueError(f"{name} is a lazily negated view, whose memory holds the other sign: pass {name}.resolve_neg()")


def refuse_overlap(**tensors: Tensor) -> None:
    """ValueError if a tensor to be written is expanded: several of its elements share one address, and the last to write wins."""
    for name, tensor in tensors.items():
        strides = tensor.stride()
        if 0 in strides and any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, strides, strict=True)):
            raise ValueError(f"{name} is written, but an expanded dimension shares its memory: pass {name}.contiguous()")


def last_offset(tensor: Tensor) -> int:
    """Elements from the tensor's first to its farthest one. It may exceed numel() - 1 where the tensor is a view."""
    return sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 0)


def fits_int32(**tensors: Tensor) -> None:
    """ValueError if an element lies 2³¹ elements or more after the first: for kernels that count offsets in 32 bits."""
    for name, tensor in tensors.items():
        if (tensor.numel() >= INT32_LIMIT or not tensor.is_contiguous()) and last_offset(tensor) >= INT32_LIMIT:
            raise ValueError(f"{name} spans {last_offset(tensor) + 1} elements; this kernel takes less than 2**31: split it")


def rows_fit_int32(rows: int, dim: int = 0, /, **tensors: Tensor) -> None:
    """ValueError if so many rows along `dim` reach 2³¹ elements: for kernels that count a tile's origin in 64 bits, and within
    the tile in 32."""
    for name, tensor in tensors.items():
        stride, count = tensor.stride(dim), min(rows, tensor.shape[dim])
        if count * stride >= INT32_LIMIT:
            raise ValueError(f"{name}'s rows lie {stride} elements apart; {count} of them pass 2**31: pass {name}.contiguous()")


def _check_device(name: str, tensor: Tensor) -> None:
    if INTERPRETED:
        return
    if tensor.device.type != "cuda":
        raise ValueError(
            f"{name} is on {tensor.device}, but kernels run on a GPU: move it there, or set TRITON_INTERPRET=1 before the import"
        )
    if tensor.device.index != torch.cuda.current_device():
        raise ValueError(
            f"{name} is on {tensor.device}, the current device is cuda:{torch.cuda.current_device()}: use torch.cuda.device(...)"
        )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
