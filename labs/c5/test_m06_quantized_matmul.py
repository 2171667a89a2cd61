"""Checks of 5.6: bytes as documented, products against torch's, bytes moved, what a compiler makes of it."""

import pytest
import torch

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal, assert_raises

pytest.importorskip("triton", reason="the kernels need Triton, which exists for Linux only")

from minillm.kernels.instruments.traffic import trace
from minillm.kernels.int4_packing import Int4Weight, pack_int4

from labs.kit.fence import fenced
from labs.kit.kernel_checks import DEVICE, assert_no_spills, counted
from labs.kit.launches import launches

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def groups_of(n, k, g, dtype=BF16):
    """q, scale, minimum, and the weight they stand for, float64. Every group has a scale and a minimum of its own."""
    q = torch.randint(0, 16, (n, k), dtype=torch.uint8)
    scale, minimum = (0.02 + torch.rand(n, k // g)).to(dtype), torch.randn(n, k // g).to(dtype)
    dense = q.double() * scale.double().repeat_interleave(g, 1) + minimum.double().repeat_interleave(g, 1)
    return q.to(DEVICE), scale.to(DEVICE), minimum.to(DEVICE), dense.to(DEVICE)


def random(*shape, dtype=BF16):
    return torch.randn(shape).to(dtype).to(DEVICE)


# ------------------------------------------------------------------------------------------------------------------- pack_int4


@checks("pack_int4")
def test_order_of_one_group(lab):
    q = (torch.arange(32, dtype=torch.uint8) * 7 % 16)[None]
    packed = lab.pack_int4(q, torch.ones(1, 1), torch.zeros(1, 1)).packed
    said = f"one group of 32: {q[0].tolist()}"
    low, high = (packed & 15).tolist(), (packed >> 4).tolist()
    assert_equal(low, [q[0, :16].tolist()], "the low four bits of the 16 bytes", said, "byte j's are input j: the first half")
    assert_equal(high, [q[0, 16:].tolist()], "the high four bits", said, "byte j's are input j + G / 2: the second half")


@checks("pack_int4")
@pytest.mark.parametrize("shape", [(1, 64, 32), (3, 384, 64), (2, 256, 128), (5, 128, 128), (0, 64, 32)], ids=str)
def test_each_group_by_itself(lab, shape):
    n, k, g = shape
    q, scale, minimum, _ = groups_of(n, k, g)
    before = q.clone()
    got, said = lab.pack_int4(q, scale, minimum), f"N, K, G = {shape}"
    first, second = q.reshape(n, k // g, 2, g // 2).unbind(2)
    expected = (first + 16 * second).reshape(n, k // 2)
    assert_equal(got.packed.dtype, torch.uint8, "the dtype of packed", said)
    assert_equal(got.packed.is_contiguous(), True, "whether packed is contiguous", said, "[N, K / 2], row after row")
    assert_close(
        got.packed.int(), expected.int(), "packed", atol=0, rtol=0, inputs=said, hint="halves are a group's, not a row's"
    )
    for name, tensor, whole in (("scale", got.scale, scale), ("minimum", got.minimum, minimum)):
        assert_close(tensor, whole.T, name, atol=0, rtol=0, inputs=said, hint="[K / G, N]: transposed")
        assert_equal(
            tensor.is_contiguous(), True, f"whether {name} is contiguous", said, "a transposed view is not laid out anew"
        )
    assert_close(q.int(), before.int(), "q afterwards", atol=0, rtol=0, inputs=said, hint="arguments stay as they are")


@checks("pack_int4")
def test_columns_of_a_wider_tensor(lab):
    q, scale, minimum, _ = groups_of(4, 256, 32)
    got = lab.pack_int4(q[:, 64:192], scale[:, 2:6], minimum[:, 2:6])
    expected = lab.pack_int4(q[:, 64:192].clone(), scale[:, 2:6].clone(), minimum[:, 2:6].clone())
    for name in ("packed", "scale", "minimum"):
        a, b = getattr(got, name), getattr(expected, name)
        assert_close(a.float(), b.float(), name, atol=0, rtol=0, inputs="128 of the 256 columns, as views")


@checks("pack_int4")
def test_what_does_not_fit(lab):
    q, scale, minimum, _ = groups_of(2, 64, 32)
    q[1, 40] = 16
    hint = "q << 4 of a number above 15 loses its top bit, and in the low half it runs into its neighbour"
    assert_raises(ValueError, lambda: lab.pack_int4(q, scale, minimum), "pack_int4 with a q of 16", hint=hint)
    for k, groups in ((64, 4), (64, 0), (96, 2), (100, 3), (512, 2)):
        q, scale = torch.zeros(2, k, dtype=torch.uint8), torch.ones(2, groups)
        call = f"pack_int4 of {k} inputs in {groups} groups"
        hint = "K must be a whole number of groups, of 32, 64 or 128"
        assert_raises(ValueError, lambda q=q, s=scale: lab.pack_int4(q, s, s), call, hint=hint)


# ----------------------------------------------------------------------------------------------------------------------- w4a16

LIKELY = (
    "low four bits: input j of the group, high four: j + G / 2; scale and minimum are [K / G, N]: those of group g and channel n "
    "lie at g * N + n; b = minimum - 16 * scale"
)


def assert_product(got, x, dense, bias, said, hint=LIKELY):
    expected = x.double() @ (dense if x.shape[0] == 1 else dense.to(x.dtype).double()).T
    expected += 0 if bias is None else bias.double()
    size = (x.double().abs() @ dense.abs().T).max().item() if x.numel() and dense.numel() else 1.0
    eps = torch.finfo(x.dtype).eps
    wide = 4e-6 if x.dtype == FP32 else 2e-6
    assert_close(got, expected.to(x.dtype), "x · Wᵀ", atol=size * wide, rtol=2 * eps, inputs=said, hint=hint)


@checks("w4a16")
@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 5, 64, 32), (1, 20, 384, 128), (3, 70, 192, 64), (17, 33, 128, 128), (2, 1, 96, 32)], ids=str
)
def test_product(lab, shape, dtype):
    m, n, k, g = shape
    q, scale, minimum, dense = groups_of(n, k, g, dtype)
    weight, x = pack_int4(q, scale, minimum), random(m, k, dtype=dtype)
    with fenced():
        got = lab.w4a16(x, weight)
    assert_product(got, x, dense, None, f"M, N, K, G = {shape}, {dtype}")


@checks("w4a16")
@pytest.mark.parametrize("rows", [1, 5])
def test_bias_views_and_scales_of_another_dtype(lab, rows):
    q, scale, minimum, dense = groups_of(21, 128, 32, FP32)
    packed, scale, minimum = pack_int4(q, scale, minimum)
    wide = torch.zeros(21, 200, dtype=torch.uint8, device=DEVICE)
    wide[:, 16:80] = packed
    weight = Int4Weight(wide[:, 16:80], scale, minimum)
    x, bias = random(rows, 160)[:, 16:144], random(21) * 50
    with fenced():
        got = lab.w4a16(x, weight, bias)
    said = f"{rows} rows of 128 in rows of 160, packed rows of 64 in rows of 200, bfloat16; scale and minimum float32; a bias"
    hint = "x and packed have row strides of their own; convert scale and minimum to float32; the bias comes before the rounding"
    assert_product(got, x, dense, bias, said, hint)


@checks("w4a16")
def test_more_rows_than_a_tile(lab):
    q, scale, minimum, dense = groups_of(66, 64, 32)
    weight, x = pack_int4(q, scale, minimum), random(131, 64)
    with fenced():
        got = lab.w4a16(x, weight)
    assert_product(got, x, dense, None, "M, N, K, G = 131, 66, 64, 32, bfloat16", "rows past M and channels past N are masked")


@checks("w4a16")
@pytest.mark.parametrize("rows", [1, 2])
def test_where_a_weight_is_rounded(lab, rows):
    """Weights of 1 and 1 + 1/512, which bfloat16 does not have; x is +1 at the latter and -1 at the former."""
    q = (torch.arange(128, device=DEVICE) % 2).to(torch.uint8).repeat(4, 1)
    scale, minimum = torch.full((4, 1), 2.0**-9, device=DEVICE).to(BF16), torch.ones(4, 1, device=DEVICE).to(BF16)
    x = (2 * (q[:1].float() - 0.5)).to(BF16).expand(rows, 128).contiguous()
    got = lab.w4a16(x, pack_int4(q, scale, minimum))
    expected = torch.full((rows, 4), 0.125 if rows == 1 else 0.0, device=DEVICE).to(BF16)
    said = f"{rows} row(s): 64 times 1 + 1/512, minus 64 times 1, bfloat16"
    hint = (
        "with one row, weights stay float32: nothing needs them in 16 bits"
        if rows == 1
        else "with several rows, a weight is rounded to x's dtype before tl.dot: 1 + 1/512 becomes 1"
    )
    assert_close(got, expected, "x · Wᵀ", atol=1e-3, rtol=0, inputs=said, hint=hint)


@checks("w4a16")
@pytest.mark.parametrize("rows", [1, 2])
def test_sums_are_float32(lab, rows):
    """Group sums of 2,048, then 1 six times, then -2,048."""
    q = torch.zeros(4, 8 * 128, dtype=torch.uint8, device=DEVICE)
    one = torch.ones(4, 8, device=DEVICE).to(BF16)
    x = torch.zeros(rows, 8, 128, device=DEVICE)
    x[:, :, 0] = torch.tensor([2048.0, 1, 1, 1, 1, 1, 1, -2048.0])
    got = lab.w4a16(x.flatten(1).to(BF16), pack_int4(q, one / 16, one))
    hint = "2,048 + 1 is 2,048 in bfloat16 (and float16): keep the sum in float32 over all groups, round once at the end"
    assert_close(
        got, torch.full_like(got, 6.0), "x · Wᵀ", atol=1e-2, rtol=0, inputs="2048 + 1 + 1 + 1 + 1 + 1 + 1 - 2048", hint=hint
    )


@checks("w4a16")
@pytest.mark.parametrize("rows", [1, 2])
def test_every_four_bits(lab, rows):
    """x is one at a single input: the result is that weight."""
    q = torch.stack([(torch.arange(64) + i) % 16 for i in range(16)]).to(torch.uint8).to(DEVICE)
    one = torch.ones(16, 2, device=DEVICE)
    weight = pack_int4(q, one, 0 * one)
    for k in (0, 15, 16, 31, 32, 63):
        x = torch.zeros(rows, 64, device=DEVICE)
        x[:, k] = 1
        said = f"{rows} row(s), x is 1 at input {k} of two groups of 32, scale 1, minimum 0"
        hint = (
            f"input {k} sits in the {'low' if k % 32 < 16 else 'high'} four bits; q has no sign, 8 to 15 are no negative numbers"
        )
        got = lab.w4a16(x, weight)
        assert_close(got, q[:, k].float().expand(rows, 16), "the weights", atol=1e-4, rtol=0, inputs=said, hint=hint)


@checks("w4a16")
@pytest.mark.parametrize("sizes", [(0, 8), (1, 0), (3, 0)], ids=str)
def test_nothing(lab, sizes):
    m, n = sizes
    got = lab.w4a16(random(m, 64), pack_int4(*groups_of(n, 64, 32)[:3]))
    assert_equal(list(got.shape), [m, n], "the shape", f"M, N = {sizes}")


@counted
@checks("w4a16")
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_bytes(lab, rows, with_bias):
    n, k, g = 70, 512, 128
    q, scale, minimum, _ = groups_of(n, k, g)
    weight, x, bias = pack_int4(q, scale, minimum), random(rows, k), random(n) if with_bias else None
    tensors = {"x": x, **weight._asdict(), **({"bias": bias} if with_bias else {})}
    with trace(**tensors) as traffic, launches() as launched:
        lab.w4a16(x, weight, bias)
    report, said = traffic.report(), f"M, N, K, G = {rows}, {n}, {k}, {g}, bfloat16"
    assert report.total.bytes, f"{said}: no kernel asked for a byte; the work must be done by your Triton kernels, not by torch"
    out = rows * n * 2
    rest = report.total.bytes - sum(report[name].bytes for name in tensors)
    dense = 2 * n * k
    more = f"a weight that is expanded in memory is {dense:,} bytes written and {dense:,} read, four times what was saved"
    assert_equal(rest, out, "bytes moved beside its inputs: out's, once", said, f"{more}\n{report}")
    once = "each byte holds two weights: load it once, take both from the register"
    assert_equal(report["packed"].load_bytes, n * k // 2, "bytes loaded of packed", said, f"{once}\n{report}")
    for name in ("scale", "minimum"):
        hint = f"one for a group and a channel, {2 * n * k // g} bytes: load [BLOCK_N] of them, then broadcast\n{report}"
        assert_equal(report[name].load_bytes, 2 * n * k // g, f"bytes loaded of {name}", said, hint)
    if with_bias:
        expected = bias.nbytes * -(-rows // launched[0].arguments.get("BLOCK_M", 64))
        hint = f"by each program, of its channels; torch would need a launch and a rounding more\n{report}"
        assert_equal(report["bias"].load_bytes, expected, "bytes loaded of bias", said, hint)
    block = launched[0].arguments.get("BLOCK_N", n)
    hint = f"programs have {block} channels each: all of x once for each of the {-(-n // block)}, from the register after that"
    assert_equal(report["x"].load_bytes, x.nbytes * -(-n // block), "bytes loaded of x", said, f"{hint}\n{report}")


@checks("w4a16")
@pytest.mark.parametrize("rows", [1, 16, 64])
def test_compiles(lab, rows):
    weight, x = pack_int4(*groups_of(16, 4096, 128)[:3]), random(rows, 4096)
    with launches() as launched:
        lab.w4a16(x, weight)
    said = f"w4a16, {rows} row(s) of 4,096 bfloat16, RTX 4090"
    found = assert_no_spills(launched[0], said)
    slow = {name: n for name, n in found.instructions.items() if name.startswith("I2F") and not name.endswith(".RP")}
    assert not slow, f"{said}: {slow} convert integers to floats; let the bits of q be the bits of v = 1 + q / 16\n{found}"
    if rows > 1:
        cores = found.tensor_core_instructions
        assert cores, f"{said}: no tensor cores; both operands of tl.dot must be of x's 16-bit dtype\n{found}"


@checks("w4a16")
def test_float32_stays_float32(lab):
    weight, x = pack_int4(*groups_of(16, 128, 32, FP32)[:3]), random(16, 128, dtype=FP32)
    with launches() as launched:
        lab.w4a16(x, weight)
    found = launched[0].inspect("sm_89")
    assert not found.tensor_core_instructions, (
        "w4a16, 16 rows of 128 float32, RTX 4090: tensor cores round float32 to TF32, of 11 bits; the interpreter does not, "
        f'so no value shows it here. Write tl.dot(…, acc, input_precision="ieee")\n{found}'
    )
