"""Which products a kernel asked tl.dot for. The interpreter computes all of them alike; a tensor core does not.

with dots() as products:
    lab.flash_attention_varlen(…)
products[Dot("fp32", "fp32", "tf32x3", (16, 64, 32))]   # how often

Empty on a GPU, where only the compiled code knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Dot(NamedTuple):
    """[m, k] @ [k, n] of these dtypes, in Triton's names; precision: "ieee", "tf32" or "tf32x3", for float32 only."""

    left: str
    right: str
    precision: str
    shape: tuple[int, int, int]


@contextmanager
def dots() -> Iterator[Counter[Dot]]:
    """The products of every kernel launched inside."""
    from minillm.kernels.runtime import INTERPRETED

    seen: Counter[Dot] = Counter()
    if not INTERPRETED:
        yield seen
        return
    from triton.runtime.interpreter import interpreter_builder as builder

    create = builder.create_dot

    def noted(a, b, d, input_precision, max_num_imprecise_acc):
        shape = (*a.data.shape[-2:], b.data.shape[-1])
        seen[Dot(str(a.dtype.scalar), str(b.dtype.scalar), input_precision.name.lower(), shape)] += 1
        return create(a, b, d, input_precision, max_num_imprecise_acc)

    builder.create_dot = noted
    try:
        yield seen
    finally:
        del builder.create_dot  # the class has it


def assert_dots(call, dtype, block_m: int, block_n: int, said: str) -> None:
    """All products are of blocks as they were loaded, in the precision that PRECISION asks for, and of the tile's size."""
    from minillm.kernels.attention_tiles import dot_precision

    from labs.kit.compare import assert_equal

    with dots() as products:
        call()
    assert products, f"{said}: no product by tl.dot; only those run on tensor cores"
    name = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[str(dtype).removeprefix("torch.")]
    for dot in products:
        operands = (
            "tl.dot takes q, k and v as they were loaded and weights.to(v.dtype); in float32 no fast tensor core takes them"
        )
        assert_equal((dot.left, dot.right), (name, name), "the dtypes of a product's operands", inputs=said, hint=operands)
        precision = "tl.dot(…, input_precision=PRECISION): without it float32 is cut to TF32's 10 bits on a GPU, though not here"
        assert_equal(dot.precision, dot_precision(dtype), "a product's input_precision", inputs=said, hint=precision)
        tile = f"tiles: BLOCK_M = {block_m}, BLOCK_N = {block_n} was asked for"
        has_both = not Counter((block_m, block_n)) - Counter(dot.shape)
        assert has_both, (
            f"{said}: a product of shape (m, k, n) = {dot.shape}\n  likely   {tile}; the kernel takes its tile from there"
        )
