"""The largest logit of each row: greedy decoding.

logits [B, V] in bfloat16, float16 or float32 -> [B] int64, the first of equals, −0 and 0 being equal; the first NaN where there
is one, as torch does on a CPU. One program a row, which reads it once: **s·B·V** bytes, s of the dtype, and 8·B for the tokens.
"""

from __future__ import annotations

import torch
from minillm.kernels.checks import (
    check_last_dim_contiguous,
    check_shape,
    check_tensors,
    fits_int32,
    refuse_negative_strides,
    require,
)
from minillm.kernels.rows import next_power_of_2
from minillm.kernels.runtime import tl, triton
from minillm.kernels.sample_search import largest
from minillm.kernels.shipped import Shipped
from torch import Tensor

BLOCK_BYTES = 16 * 1024  # of logits that a program holds at once, 16 logits a thread: with more of either, registers spill


@triton.jit
def argmax_kernel(logits_ptr, token_ptr, stride, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    _, index = largest(logits_ptr + row * stride, length, BLOCK)
    tl.store(token_ptr + row, index.to(tl.int64))


def argmax(logits: Tensor) -> Tensor:
    """logits [B, V] -> [B] int64: each row's largest, the first of equals; the first NaN if there is one."""
    check_logits(logits)
    tokens = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    if len(tokens):
        block = block_for(logits.shape[1], logits.dtype)
        argmax_kernel[(len(tokens),)](logits, tokens, logits.stride(0), logits.shape[1], BLOCK=block, num_warps=warps_for(block))
    return tokens


def check_logits(logits: Tensor) -> None:
    """Logits [B, V] that a program can walk over: V > 0, neighbours in memory, offsets within a row below 2³¹."""
    check_tensors(logits=logits)
    check_shape((None, None), logits=logits)
    require(logits.shape[1] > 0 or logits.shape[0] == 0, "logits have no columns: there is no token to choose")
    refuse_negative_strides(logits=logits)
    check_last_dim_contiguous(logits=logits)
    fits_int32(logits_row=logits[:1])


def block_for(length: int, dtype: torch.dtype) -> int:
    return min(BLOCK_BYTES // dtype.itemsize, next_power_of_2(length))


def warps_for(block: int) -> int:
    return max(1, block // 512)


def argmax_torch(logits: Tensor) -> Tensor:
    """The same in plain torch."""
    return logits.argmax(-1)


def argmax_bytes(rows: int, length: int, dtype: torch.dtype) -> int:
    """Bytes that argmax requests: the logits, and a token for each row."""
    return rows * (length * dtype.itemsize + 8)


def _shipped(name: str, length: int) -> Shipped:
    block = block_for(length, torch.bfloat16)
    signature = {"logits_ptr": "*bf16", "token_ptr": "*i64", "stride": "i32", "length": "i32"}
    return Shipped(name, "minillm.kernels.argmax:argmax_kernel", signature, {"BLOCK": block}, tuple(signature), warps_for(block))


SHIPPED = (_shipped("argmax.bf16.128256", 128256),)  # Llama 3's vocabulary
