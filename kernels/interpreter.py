"""Repairs the arithmetic of Triton's interpreter, so that a kernel's result on a CPU is the result its GPU would round to.

The interpreter of Triton 3.7 runs a kernel's operations in NumPy, which knows neither bfloat16 nor float8. It keeps both as raw
bit patterns, and this goes wrong without a message:

- bfloat16: `x + y` adds the *bit patterns*, as unsigned integers; `tl.full(..., tl.bfloat16)` fails; a cast from float32 cuts
  bits off instead of rounding, `tl.abs`, `tl.max`, `tl.dot` and comparisons see integers.
- float8: a cast rounds the significand up without carrying into the exponent (1.99 becomes 1.0), and overflow is not the
  GPU's saturation.
- float16 and bfloat16 `tl.dot`: operands are multiplied in the wrong format, or not at all.
- `tl.minimum`, `tl.maximum` and `tl.clamp` answer NaN where a GPU returns the other operand.
- Overflow, NaN and division by zero, silent on a GPU, print NumPy's warnings.

`install()` replaces the interpreter's builder, the object that performs a kernel's operations, by one that does this right:

- a bfloat16 block is held as float32 numbers that are exactly representable in bfloat16; every handle is rounded as it is made.
  One float32 operation followed by one rounding *is* correct bfloat16 arithmetic for + − × ÷ √, since 24 ≥ 2·8 + 2 significand
  bits make the double rounding harmless (Figueroa, "When is double rounding innocuous?", SIGNUM 1995). Loads, stores and
  bitcasts convert at the border.
- a float8 block stays bytes; casts round to nearest even and saturate at the largest number, as `cvt.rn.satfinite` does.
  Arithmetic on float8, which GPUs do not have, is refused.
- `tl.dot` multiplies in float32, where products of 8- and 16-bit floats are exact, and accumulates in float32.

What still differs from a GPU: the order of a sum; a reduction in bfloat16, rounded once here, at every step there; float32
`tl.dot`, exact here, TF32 there unless asked for `input_precision="ieee"`; exp and its like, to the last bit; blocks smaller
than the 16 rows and columns that a GPU's `tl.dot` demands run here; no inline assembly, no libdevice.
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import torch
import triton
import triton.language as tl
from minillm.kernels.interpreted_language import interpret_the_language
from triton.runtime import interpreter as upstream

TESTED = "3.7"  # the builder is not a public interface: a new minor version must be read and tested first
REPLACED = (
    "InterpreterBuilder",
    "TensorHandle",
    "GridExecutor",
    "_get_np_dtype",
    "_validate_np_data_size",
    "interpreter_builder",
)

FLOAT32 = np.dtype(np.float32)
FLOAT8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
_DECODED = {ours: torch.arange(256, dtype=torch.uint8).view(theirs).float().numpy() for ours, theirs in FLOAT8.items()}


def install() -> None:
    """Repairs the interpreter of this process, once: a second call changes nothing.

    Raises RuntimeError where this Triton has no such interpreter; warns where it is not the version this was tested with.
    """
    if missing := [name for name in REPLACED if not hasattr(upstream, name)]:
        raise RuntimeError(
            f"the interpreter of Triton {triton.__version__} has no {', '.join(missing)}, so its bfloat16 cannot be repaired; "
            f"install triton {TESTED}, or run on a GPU"
        )
    if isinstance(upstream.interpreter_builder, ExactBuilder):
        return
    if not re.match(re.escape(TESTED) + r"(\.|$)", triton.__version__):
        warnings.warn(
            f"bfloat16 and float8 in Triton's interpreter are repaired for {TESTED}, and this is {triton.__version__}: "
            "run pytest tests/kernels/test_interpreter.py before you trust a result",
            stacklevel=2,
        )
    _hold_bfloat16_as_float32()
    interpret_the_language()
    _look_at_the_language_once()
    upstream.GridExecutor.__call__ = np.errstate(all="ignore")(upstream.GridExecutor.__call__)
    upstream.interpreter_builder.__class__ = ExactBuilder


def bfloat16_bits(numbers: np.ndarray) -> np.ndarray:
    """float32 to the bit patterns (uint16) of the nearest bfloat16, ties to even; every NaN becomes the quiet 0x7FC0."""
    bits = np.ascontiguousarray(numbers, FLOAT32).view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # just under half a step, and the last bit that stays, breaks ties
    return np.where(np.isnan(numbers), 0x7FC0, nearest).astype(np.uint16)


def bfloat16_numbers(bits: np.ndarray) -> np.ndarray:
    """The bit patterns (16-bit integers) of bfloat16 as float32: they are its upper half."""
    return (np.ascontiguousarray(bits).view(np.uint16).astype(np.uint32) << 16).view(FLOAT32)


def float8_bits(numbers: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """float32 to float8 bytes: nearest, ties to even; beyond the largest number, infinity included, the largest; NaN stays."""
    largest = torch.finfo(FLOAT8[dtype]).max
    clipped = np.clip(np.ascontiguousarray(numbers, FLOAT32), -largest, largest)
    return torch.from_numpy(clipped).to(FLOAT8[dtype]).view(torch.uint8).numpy()


def _is_bfloat16(dtype: tl.dtype) -> bool:
    return dtype.scalar == tl.bfloat16  # a pointer's scalar is the pointer: addresses are not numbers


def _hold_bfloat16_as_float32() -> None:
    """Tells the rest of the interpreter that bfloat16 lives in float32 arrays, and rounds whatever becomes a bfloat16 block."""
    numpy_dtype, fits, check = upstream._get_np_dtype, upstream._validate_np_data_size, upstream.TensorHandle.__post_init__

    def numpy_dtype_or_float32(dtype):
        return FLOAT32 if _is_bfloat16(dtype) else numpy_dtype(dtype)

    def fits_or_is_bfloat16(data, dtype):
        return data.itemsize <= 4 if _is_bfloat16(dtype) else fits(data, dtype)

    def round_and_check(handle):
        held = handle.data.dtype == FLOAT32 and _is_bfloat16(handle.dtype)
        if held and (handle.data.view(np.uint32) & 0xFFFF).any():  # most handles only move numbers about, as views
            handle.data = bfloat16_numbers(bfloat16_bits(handle.data))
        check(handle)

    upstream._get_np_dtype = numpy_dtype_or_float32
    upstream._validate_np_data_size = fits_or_is_bfloat16
    upstream.TensorHandle.__post_init__ = round_and_check


def _look_at_the_language_once() -> None:
    """A call of one jit function in another (`tl.sum` is one) searches all of triton.language for what it could still replace
    by an interpreted version. After the first search there is nothing, and the searching would be most of a kernel's time."""
    patch, languages = upstream._patch_lang, {}

    def patch_if_needed(fn):
        if fn not in languages:
            languages[fn] = [lang for lang in (tl, tl.core) if any(value is lang for value in fn.__globals__.values())]
        done = all(getattr(lang.range, "__module__", "") == upstream.__name__ for lang in languages[fn])
        return upstream._LangPatchScope() if done else patch(fn)

    upstream._patch_lang = patch_if_needed


class ExactBuilder(upstream.InterpreterBuilder):
    """The interpreter's builder with correct bfloat16 and float8. Handles hold NumPy data and a Triton dtype."""

    def get_bf16(self, value):
        return upstream.TensorHandle(np.array([value], FLOAT32), tl.bfloat16)

    # memory

    def create_masked_load(self, ptrs, mask, other, *options, **named):
        if ptrs.get_element_ty() != tl.bfloat16:
            return super().create_masked_load(ptrs, mask, other, *options, **named)
        fill = np.zeros(ptrs.data.shape, np.uint16) if other is None else bfloat16_bits(other.data)
        bits = upstream._interpreter.load(ptrs.data, mask.data, fill, np.dtype(np.uint16))
        return upstream.TensorHandle(bfloat16_numbers(bits), tl.bfloat16)

    def create_masked_store(self, ptrs, value, mask, *options):
        if ptrs.get_element_ty() != tl.bfloat16:
            return super().create_masked_store(ptrs, value, mask, *options)
        return upstream._interpreter.store(ptrs.data, bfloat16_bits(value.data), mask.data)

    def create_atomic_rmw(self, operation, ptr, value, mask, sem, scope):
        if not _is_bfloat16(value.dtype):
            return super().create_atomic_rmw(operation, ptr, value, mask, sem, scope)
        # programs run one after another, so only the lanes of one block can meet: one at a time, as their addresses may repeat
        before = np.zeros(value.data.shape, FLOAT32)
        for lane in zip(*np.nonzero(mask.data), strict=True):
            here = upstream.TensorHandle(ptr.data[lane].reshape(1), ptr.dtype)
            active = upstream.TensorHandle(np.ones(1, bool), tl.int1)
            old = self.create_masked_load(here, active, None)
            added = self.create_fadd(old, upstream.TensorHandle(value.data[lane].reshape(1), tl.bfloat16))
            self.create_masked_store(here, added, active)
            before[lane] = old.data[0]
        return upstream.TensorHandle(before, tl.bfloat16)

    # casts

    def cast_impl(self, source, dtype):
        if _is_bfloat16(source.dtype) or _is_bfloat16(dtype):
            return upstream.TensorHandle(source.data.astype(upstream._get_np_dtype(dtype)), dtype.scalar)
        return super().cast_impl(source, dtype)

    def create_fp_to_fp(self, source, dtype, rounding_mode):
        """Casts from and to float8, and those with a rounding mode: only to nearest, which is the default, is done right."""
        if rounding_mode not in (None, upstream._ir.ROUNDING_MODE.RTNE):
            raise NotImplementedError("the interpreter rounds to nearest only: leave fp_downcast_rounding out")
        old, new = source.dtype.scalar, dtype.scalar
        if unknown := [str(t) for t in (old, new) if t.primitive_bitwidth == 8 and t not in FLOAT8]:
            raise NotImplementedError(f"the interpreter knows float8e4nv and float8e5, not {unknown[0]}")
        numbers = _DECODED[old][source.data] if old in FLOAT8 else source.data
        if new in FLOAT8:
            return upstream.TensorHandle(float8_bits(numbers, new), new)
        return upstream.TensorHandle(numbers.astype(upstream._get_np_dtype(new)), new)

    def create_bitcast(self, source, dtype):
        data = source.data
        if _is_bfloat16(source.dtype) and data.dtype == FLOAT32:
            data = bfloat16_bits(data)
        if _is_bfloat16(dtype):
            return upstream.TensorHandle(bfloat16_numbers(data), dtype.scalar)
        return upstream.TensorHandle(data.view(upstream._get_np_dtype(dtype)), dtype.scalar)

    create_int_to_ptr = create_ptr_to_int = create_bitcast

    # arithmetic: float32 operations, rounded when their result becomes a handle

    def binary_op(self, left, right, operation):
        if left.dtype.scalar in FLOAT8:
            raise NotImplementedError(f"there is no arithmetic on {left.dtype}: convert it with .to(tl.float32) first")
        return super().binary_op(left, right, operation)

    def create_fabs(self, source):
        return self.unary_op(source, np.abs) if _is_bfloat16(source.dtype) else super().create_fabs(source)

    def create_minnumf(self, left, right):
        return self.binary_op(left, right, np.fmin)

    def create_maxnumf(self, left, right):
        return self.binary_op(left, right, np.fmax)

    def create_clampf(self, source, low, high, propagate_nans):
        if propagate_nans == upstream._ir.PROPAGATE_NAN.ALL:
            return super().create_clampf(source, low, high, propagate_nans)
        return self.create_minnumf(self.create_maxnumf(source, low), high)

    def create_dot(self, left, right, accumulator, *options):
        left, right = self._widened(left), self._widened(right)
        if left.data.dtype != FLOAT32:
            return super().create_dot(left, right, accumulator, *options)
        product = np.matmul(left.data, right.data) + accumulator.data.astype(FLOAT32)
        return upstream.TensorHandle(product.astype(accumulator.data.dtype), accumulator.dtype.scalar)

    def _widened(self, operand):
        narrow = operand.dtype.scalar in FLOAT8 or operand.dtype.scalar in (tl.float16, tl.bfloat16)
        return self.create_fp_to_fp(operand, tl.float32, None) if narrow else operand
