"""Checks of 5.3: values against torch's own product, memory around tensors, bytes moved, what a compiler makes of it."""

import itertools

import pytest
import torch

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal

pytest.importorskip("triton", reason="the kernels need Triton, which exists for Linux only")

from minillm.kernels.gemm import gemm_bytes
from minillm.kernels.gemv import GemvConfig
from minillm.kernels.grouped_gemm import grouped_gemm_blocks
from minillm.kernels.runtime import triton

from labs.kit.far_apart import far_apart
from labs.kit.fence import fenced
from labs.kit.kernel_checks import DEVICE, DTYPES, GUARD, counted, random
from labs.kit.launches import launches
from labs.kit.products import (
    EDGES,
    assert_at_most,
    assert_compiles,
    assert_guards,
    assert_product,
    full_precision,
    launched_by,
    moved,
    product,
    sliced,
)

RANGE = "bfloat16 reaches 3e38, float16 65,504: give tl.dot the blocks in the type that they are stored in"
WIDE = "a tile's first row times its stride passes 2**31: `.to(tl.int64)` before the multiplication"


# ------------------------------------------------------------------------------------------------------------------------ gemm


def config(block_m, block_n, block_k, group_m=2, num_warps=4, num_stages=2):
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group_m}
    return triton.Config(blocks, num_warps=num_warps, num_stages=num_stages)


@checks("gemm")
@pytest.mark.parametrize("shape", [(1, 1, 1), (20, 40, 70), (3, 70, 33), (33, 16, 32)], ids=str)
def test_products_of_any_shape(lab, shape):
    for dtype in DTYPES:
        m, n, k = shape
        x, w, bias = random(m, k, dtype=dtype), random(n, k, dtype=dtype), random(n, dtype=dtype)
        out, wide = sliced(torch.zeros(m, n, dtype=dtype, device=DEVICE))
        said = f"M, N, K = {shape}, {dtype}, tiles of 16 x 32 x 32, out a slice of a wider tensor"
        with fenced():
            got = lab.gemm(x, w, bias, out=out, config=config(16, 32, 32))
        assert_guards(wide, out, said)
        expected = product(x, w, bias)
        assert_product(got, expected, "x · Wᵀ + bias", said)
        if dtype != torch.float32 and m * n > 500:
            same = (got == expected).float().mean().item()
            assert same > 0.97, f"{said}: only {same:.1%} are rounded once; add the bias in float32, then round"
        assert_equal(got is out, True, "whether `out` is returned", inputs=said)


@checks("gemm")
def test_without_bias_in_a_new_tensor(lab):
    x, w = random(20, 48), random(24, 48)
    said = "M, N, K = 20, 24, 48, float32, no bias, no out, no config"
    with full_precision(said), fenced():
        got = lab.gemm(x, w)
    assert_product(got, product(x, w), "x · Wᵀ", said)


@checks("gemm")
def test_slices_with_nan_behind_them(lab):
    x, w = sliced(random(20, 40), torch.nan)[0], sliced(random(24, 40), torch.nan)[0]
    with fenced():
        got = lab.gemm(x, w, config=config(16, 16, 32))
    hint = "K is 40, two blocks of 32: what lies behind a row's 40 elements must not be loaded, by either load"
    assert_product(got, product(x, w), "x · Wᵀ", "x [20, 40] and w [24, 40], slices of wider tensors full of NaN", hint)


@checks("gemm")
def test_sums_stay_in_float32(lab):
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.full((2, 128), 256.0, device=DEVICE).to(dtype)
        w = torch.ones(3, 128, device=DEVICE).to(dtype) * 256
        w[:, 64:] *= -1
        w[1] = 2.0**-8
        w[1, 0] = 16
        w[2] = w[0] if dtype == torch.float16 else 2.0**40
        with fenced():
            got = lab.gemm(x, w, config=config(16, 16, 16))
        hint = (
            "the accumulator of tl.dot, tl.zeros, must be float32: in 16 bits sums pass 65,504 on the way, or lose what is small"
        )
        said = f"products of 65,536 that cancel, and 127 ones beside 4,096, {dtype}"
        assert_product(got[:, :2], product(x, w)[:, :2], "x · Wᵀ", said, hint)
        assert_product(got[:, 2:], product(x, w)[:, 2:], "x · Wᵀ", f"weights of {w[2, 0].item():g}, {dtype}", RANGE)


@checks("gemm")
@pytest.mark.parametrize("shape", [(0, 4, 8), (4, 0, 8), (3, 4, 0)], ids=str)
def test_gemm_of_nothing(lab, shape):
    m, n, k = shape
    with fenced():
        got = lab.gemm(random(m, k), random(n, k), torch.ones(n, device=DEVICE))
    assert_close(got, torch.ones(m, n, device=DEVICE), "the bias alone", atol=0, rtol=0, inputs=f"M, N, K = {shape}")


@counted
@checks("gemm")
def test_rows_of_x_and_out_beyond_two_to_the_31(lab):
    x, out = far_apart(386, 16), far_apart(386, 16)
    values, w = random(386, 16, dtype=torch.float16), random(16, 16, dtype=torch.float16)
    x.copy_(values)
    said = "x and out [386, 16], rows 2**23 - 16 elements apart"
    lab.gemm(x, w, out=out, config=config(128, 16, 16))
    assert_product(out.clone(), product(values, w), "x · Wᵀ", said, WIDE)


@counted
@checks("gemm")
def test_rows_of_w_beyond_two_to_the_31(lab):
    w = far_apart(386, 16)
    x, values = random(3, 16, dtype=torch.float16), random(386, 16, dtype=torch.float16)
    w.copy_(values)
    got = lab.gemm(x, w, out=far_apart(3, 386), config=config(16, 128, 16))
    assert_product(got, product(x, values), "x · Wᵀ", "W [386, 16], rows 2**23 - 16 elements apart", WIDE)


@checks("gemm")
@pytest.mark.parametrize("group_m", [1, 4])
def test_programs_that_run_together_share_strips(lab, group_m):
    """The call's own kernel once more, with only the first programs of its grid."""
    x, w, out = random(96, 16), random(64, 16), torch.empty(96, 64, device=DEVICE)
    said = f"6 x 4 tiles of 16 x 16, GROUP_M = {group_m}, the first 4 of 24 programs"
    chosen = config(16, 16, 16, group_m)
    launch = launched_by(lambda: lab.gemm(x, w, out=out, config=chosen), said)[0]
    given = {name: launch.arguments.get(name) for name in chosen.kwargs}
    assert_equal(given, chosen.kwargs, "block sizes that the kernel was given", inputs=said, hint="config chooses them")
    out.fill_(GUARD)
    with fenced():
        launch.kernel[(4,)](**launch.arguments, **launch.options)
    written = (out.reshape(6, 16, 4, 16) != GUARD).any(dim=3).any(dim=1)
    strips = (int(written.any(dim=1).sum()), int(written.any(dim=0).sum()))
    hint = "tile_of(program, row tiles, column tiles, GROUP_M) says which tile is a program's; a row of tiles is not its order"
    assert_equal(strips, (group_m, 4 // group_m), "strips of x and of W that they work on", inputs=said, hint=hint)


@counted
@checks("gemm")
@pytest.mark.parametrize("tile", [(16, 32), (32, 64)], ids=str)
def test_gemm_asks_for_each_strip_once_a_tile(lab, tile):
    m, n, k = 64, 128, 96
    x, w = (sliced(random(rows, k, dtype=torch.bfloat16))[0] for rows in (m, n))
    bias, out = random(n, dtype=torch.bfloat16), sliced(torch.zeros(m, n).bfloat16())[0]
    said = f"M, N, K = {m}, {n}, {k}, bfloat16, slices of wider tensors, tiles of {tile[0]} x {tile[1]}"
    report = moved(lambda: lab.gemm(x, w, bias, out, config(*tile, 32)), said, x=x, w=w, bias=bias, out=out)
    columns, rows = n // tile[1], m // tile[0]
    hint = "load a block of x once for all BLOCK_N columns of the tile, a block of W once for all its rows"
    assert_at_most(report["x"].load_bytes, columns * m * k * 2, "bytes loaded of x", said, hint, report)
    assert_at_most(report["w"].load_bytes, rows * n * k * 2, "bytes loaded of W", said, hint, report)
    hint = "the accumulator is a variable in registers; out is written once, after the loop, and nothing else"
    assert_at_most(report["bias"].bytes, rows * bias.nbytes, "bytes of the bias", said, "a tile needs it once", report)
    without_bias = report.total.bytes - report["bias"].bytes
    assert_at_most(without_bias, gemm_bytes(m, n, k, x.dtype, *tile), "bytes in all, without the bias", said, hint, report)


@checks("gemm")
def test_gemm_compiles_for_tensor_cores_without_spills(lab):
    x, w = random(128, 64, dtype=torch.bfloat16), random(128, 64, dtype=torch.bfloat16)
    said = "gemm, tiles of 128 x 128 x 64 bfloat16 on 8 warps, RTX 4090"
    assert_compiles(lambda: lab.gemm(x, w, config=config(128, 128, 64, 8, 8, 3)), said)


# ------------------------------------------------------------------------------------------------------------------------ gemv


def cut(block_n=16, block_k=32, splits=1):
    return GemvConfig(block_n, block_k, splits, num_warps=4, num_stages=3)


@checks("gemv")
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 20, 100), (3, 33, 64), (16, 17, 130)], ids=str)
def test_few_rows(lab, shape):
    for dtype, splits in ((torch.float32, 4), (torch.bfloat16, 1)):
        m, n, k = shape
        x, w, bias = random(m, k, dtype=dtype), random(n, k, dtype=dtype), random(n, dtype=dtype)
        said = f"M, N, K = {shape}, {dtype}, strips of 16, blocks of 32, {splits} split{'s' * (splits > 1)}"
        with fenced():
            got = lab.gemv(x, w, bias, cut(splits=splits))
        hint = EDGES if splits == 1 else "every part must arrive in the sum; the bias is added once, after the parts"
        assert_product(got, product(x, w, bias), "x · Wᵀ + bias", said, hint)


@checks("gemv")
def test_without_bias_or_config(lab):
    x, w = random(5, 64), random(40, 64)
    said = "M, N, K = 5, 40, 64, float32, no bias, no config"
    with full_precision(said), fenced():
        got = lab.gemv(x, w)
    assert_product(got, product(x, w), "x · Wᵀ", said)


@checks("gemv")
def test_gemv_of_slices_with_nan_behind_them(lab):
    for m, splits in itertools.product((1, 3), (1, 4)):
        x, w = (sliced(random(rows, 40, dtype=torch.float16), torch.nan)[0] for rows in (m, 20))
        with fenced():
            got = lab.gemv(x, w, config=cut(splits=splits))
        hint = "load nothing from K on, nor from the part's own end on; an empty part stores its 0 all the same"
        assert_product(got, product(x, w), "x · Wᵀ", f"x [{m}, 40] and w [20, 40], NaN behind each row, {splits} splits", hint)


@checks("gemv")
def test_parts_are_float32(lab):
    x, w = torch.ones(2, 128, device=DEVICE).bfloat16(), torch.ones(16, 128, device=DEVICE).bfloat16()
    w[:, :32], w[:, 32:64], w[:, 64:] = 31.25, -31.25, 0
    w[:, 0] = 32.25
    w[15] = 2.0**40
    with fenced():
        got = lab.gemv(x, w, config=cut(splits=4))
    hint = "1,001 needs more than bfloat16's eight bits: the accumulator and the parts are float32"
    assert_product(got[:, :15], product(x, w)[:, :15], "x · Wᵀ", "four parts, 1,001, -1,000, 0 and 0, bfloat16", hint)
    assert_product(got[:, 15:], product(x, w)[:, 15:], "x · Wᵀ", "weights of 2**40, bfloat16", RANGE)


@checks("gemv")
def test_parts_are_added_from_the_first_to_the_last(lab):
    x, w = torch.zeros(2, 128, device=DEVICE), torch.ones(16, 128, device=DEVICE)
    x[:, ::32] = torch.tensor([2.0**24, 1, 1, -(2.0**24)])
    with fenced():
        got = lab.gemv(x, w, config=cut(splits=4))
    hint = "in float32 2**24 + 1 is 2**24, so the order shows: one addition after another, from the first part to the last"
    said = "four parts, 2**24, 1, 1 and -2**24, float32"
    assert_close(got, torch.zeros_like(got), "x · Wᵀ", atol=0, rtol=0, inputs=said, hint=hint)


@checks("gemv")
def test_a_row_does_not_depend_on_its_mates(lab):
    x, w = random(9, 200, dtype=torch.bfloat16), random(20, 200, dtype=torch.bfloat16)
    with fenced():
        together, again, two = (lab.gemv(rows, w, config=cut(splits=4)) for rows in (x, x, x[3:5].clone()))
    said = "9 rows, twice, and two of them alone, 4 splits"
    assert_close(again, together, "the second time", atol=0, rtol=0, inputs=said, hint="parts are added in a fixed order")
    assert_close(two, together[3:5], "two rows alone", atol=0, rtol=0, inputs=said, hint="rows are added up apart")


@checks("gemv")
@pytest.mark.parametrize("shape", [(0, 4, 8), (1, 0, 8), (2, 4, 0)], ids=str)
def test_gemv_of_nothing(lab, shape):
    m, n, k = shape
    with fenced():
        got = lab.gemv(random(m, k), random(n, k), torch.ones(n, device=DEVICE))
    assert_close(got, torch.ones(m, n, device=DEVICE), "the bias alone", atol=0, rtol=0, inputs=f"M, N, K = {shape}")


@counted
@checks("gemv")
def test_strips_beyond_two_to_the_31(lab):
    w = far_apart(384, 16)
    x, values = random(16, 16, dtype=torch.float16), random(384, 16, dtype=torch.float16)
    w.copy_(values)
    got = lab.gemv(x, w, config=cut(64, 16))
    assert_product(got, product(x, values), "x · Wᵀ", "W [384, 16], rows 2**23 - 16 elements apart", WIDE)


@counted
@checks("gemv")
@pytest.mark.parametrize(("m", "splits"), [(1, 1), (5, 1), (5, 4)])
def test_gemv_asks_for_each_weight_once(lab, m, splits):
    n, k = 48, 256
    x, w = (sliced(random(rows, k, dtype=torch.bfloat16))[0] for rows in (m, n))
    bias = random(n, dtype=torch.bfloat16)
    said = f"M, N, K = {m}, {n}, {k}, bfloat16, slices of wider tensors, strips of 16, {splits} split{'s' * (splits > 1)}"
    report = moved(lambda: lab.gemv(x, w, bias, cut(splits=splits)), said, x=x, w=w, bias=bias)
    hint = "one strip of W serves all rows of x: one tl.dot for each block, not a pass over W for each row"
    assert_at_most(report["w"].load_bytes, n * k * 2, "bytes loaded of W", said, hint, report)
    hint = "the rows that fill the tile up to 16 do not exist: mask them, or they are read 16 times"
    assert_at_most(report["x"].load_bytes, n // 16 * m * k * 2, "bytes loaded of x", said, hint, report)
    atomics = report.total.atomic_bytes
    hint = f"atomic additions come in any order, and float32 sums depend on it: store parts, and add them in order\n{report}"
    assert_equal(atomics, 0, "bytes of atomic operations", inputs=said, hint=hint)
    rest = report.total.bytes - report["w"].bytes - report["x"].bytes - report["bias"].bytes
    hint = f"config.splits programs share each strip; their parts are written once and read once, each by one program\n{report}"
    assert_equal(rest, m * n * 2 + 8 * m * n * splits * (splits > 1), "bytes of parts and result", inputs=said, hint=hint)


@checks("gemv")
def test_gemv_compiles_for_tensor_cores_without_spills(lab):
    x, w = random(4, 256, dtype=torch.bfloat16), random(64, 256, dtype=torch.bfloat16)
    assert_compiles(lambda: lab.gemv(x, w, config=cut(64, 128)), "gemv of 4 rows, strips of 64 x 128 bfloat16, RTX 4090")


# ---------------------------------------------------------------------------------------------------------------- grouped_gemm


def grouped(group_rows, n, k, dtype=torch.float32, before=0, after=0):
    rows = before + sum(group_rows) + after
    offsets = (before + torch.tensor([0, *group_rows]).cumsum(0)).to(DEVICE)
    return random(rows, k, dtype=dtype), random(len(group_rows), n, k, dtype=dtype), offsets


def each_group(x, w, offsets, out=None):
    """In float64, group by group."""
    y = torch.zeros(len(x), w.shape[1], dtype=torch.float64, device=x.device) if out is None else out.double()
    for g, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        y[begin:end] += x[begin:end].double() @ w[g].double().T
    return y.to(x.dtype)


BOUNDARY = (
    "a tile has rows of one group only, and its last one ends where the group does: clamp or mask the loads, mask the store"
)


@checks("grouped_gemm")
@pytest.mark.parametrize(
    ("group_rows", "n", "k"), [([1], 1, 1), ([5, 0, 17], 70, 80), ([0, 0, 40], 16, 64), ([16, 33, 0], 64, 33)], ids=str
)
def test_groups_of_any_size(lab, group_rows, n, k):
    for dtype in (torch.float32, torch.bfloat16):
        x, w, offsets = grouped(group_rows, n, k, dtype)
        out, wide = sliced(torch.zeros(len(x), n, dtype=dtype, device=DEVICE))
        said = f"groups of {group_rows} rows, N, K = {n}, {k}, {dtype}, out a slice of a wider tensor"
        with fenced():
            got = lab.grouped_gemm(x, w, offsets, out=out)
        assert_guards(wide, out, said)
        assert_product(got, each_group(x, w, offsets), "each group's product", said, BOUNDARY)
        assert_equal(got is out, True, "whether `out` is returned", inputs=said)


@checks("grouped_gemm")
@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
def test_rows_of_nobody(lab, kind):
    x, w, offsets = grouped([4, 0, 6], 20, 32, before=3, after=5)
    said = f"offsets {offsets.tolist()} ({kind}) for 18 rows"
    with fenced():
        got = lab.grouped_gemm(x, w, offsets.to(kind))
    hint = "the first group begins at offsets[0], the last ends at offsets[G]; rows outside belong to nobody"
    assert_product(got, each_group(x, w, offsets), "a new result", said, hint)
    out = torch.full((18, 20), GUARD, device=DEVICE)
    with fenced():
        lab.grouped_gemm(x, w, offsets.to(kind), out=out)
    stayed = int((out[:3] == GUARD).sum() + (out[13:] == GUARD).sum())
    assert_equal(stayed, 8 * 20, "elements of rows of nobody that stayed as they were", inputs=said, hint=BOUNDARY)
    none = torch.full((4,), 2, dtype=kind, device=DEVICE)
    with fenced():
        got = lab.grouped_gemm(x, w, none)
    assert_close(got, torch.zeros_like(got), "the result", atol=0, rtol=0, inputs=f"offsets {none.tolist()}: no rows at all")


@checks("grouped_gemm")
def test_a_group_does_not_see_its_neighbours(lab):
    x, w, offsets = grouped([5, 7, 20], 20, 32)
    x[5:12] = torch.nan
    w[1] = torch.nan
    said = "groups of 5, 7 and 20 rows, float32; group 1 is all NaN"
    with full_precision(said), fenced():
        got = lab.grouped_gemm(x, w, offsets)
    expected = each_group(x, w, offsets)
    keep = [*range(5), *range(12, 32)]
    assert_product(got[keep], expected[keep], "groups 0 and 2", said, BOUNDARY)


@checks("grouped_gemm")
def test_grouped_slices_with_nan_behind_them(lab):
    values, experts, offsets = grouped([3, 0, 18], 24, 40)
    x, flat = sliced(values, torch.nan)[0], sliced(experts.reshape(-1, 40), torch.nan)[0]
    w = flat.as_strided((3, 24, 40), (24 * flat.stride(0), flat.stride(0), 1))
    with fenced():
        got = lab.grouped_gemm(x, w, offsets)
    hint = (
        "K is 40: what lies behind a row's 40 elements must not be loaded, by either load; a row of W is w_stride from the next"
    )
    said = "groups of 3, 0 and 18 rows, N, K = 24, 40, x and w slices of wider tensors full of NaN"
    assert_product(got, each_group(values, experts, offsets), "each group's product", said, hint)


@checks("grouped_gemm")
def test_sums_of_groups_stay_in_float32(lab):
    for dtype in (torch.float16, torch.bfloat16):
        x, w = torch.full((3, 256), 256.0, device=DEVICE).to(dtype), torch.full((2, 3, 256), 256.0, device=DEVICE).to(dtype)
        w[:, 0, 128:] *= -1
        w[:, 1], w[:, 1, 0] = 2.0**-8, 16
        w[:, 2] = w[:, 0] if dtype == torch.float16 else 2.0**40
        offsets = torch.tensor([0, 2, 3], device=DEVICE)
        with fenced():
            got = lab.grouped_gemm(x, w, offsets)
        expected, said = each_group(x, w, offsets), f"products of 65,536 that cancel, and 255 ones beside 4,096, {dtype}"
        hint = "the accumulator of tl.dot is float32 from the first block of K to the last"
        assert_product(got[:, :2], expected[:, :2], "each group's product", said, hint)
        assert_product(got[:, 2:], expected[:, 2:], "each group's product", f"weights of {w[0, 2, 0].item():g}, {dtype}", RANGE)


@checks("grouped_gemm")
def test_adapters_add_to_the_base(lab):
    """A LoRA adapter's second half: [T, r] times [N, r], onto the base's output."""
    for dtype in DTYPES:
        x, w, offsets = grouped([5, 9], 48, 8, dtype, after=3)
        base = random(17, 48, dtype=dtype, scale=100)
        out, wide = sliced(base)
        with fenced():
            lab.grouped_gemm(x, w, offsets, out=out, add=True)
        said = f"groups of 5 and 9 rows and 3 of nobody, rank 8, add=True, {dtype}"
        assert_guards(wide, out, said)
        expected = each_group(x, w, offsets, out=base)
        hint = "add in float32, before the one rounding; rows of nobody stay"
        assert_close(out, expected, "base + adapters", atol=1e-4, rtol=torch.finfo(dtype).eps, inputs=said, hint=hint)
        if dtype != torch.float32:
            same = (out == expected).float().mean().item()
            assert same > 0.99, f"{said}: only {same:.1%} are rounded once; add to out in float32, then round"


@checks("grouped_gemm")
@pytest.mark.parametrize("group_rows", [[0], [0, 0, 0]], ids=str)
def test_no_rows(lab, group_rows):
    with fenced():
        got = lab.grouped_gemm(*grouped(group_rows, 8, 16))
    assert_equal(list(got.shape), [0, 8], "the shape", inputs=f"groups of {group_rows} rows")


@counted
@checks("grouped_gemm")
def test_weights_beyond_two_to_the_31(lab):
    flat = far_apart(3, 4 * 16, 2**30)
    w = flat.as_strided((3, 4, 16), (2**30, 16, 1))
    values = random(3, 4, 16, dtype=torch.float16)
    w.copy_(values)
    x, offsets = random(5, 16, dtype=torch.float16), torch.tensor([0, 2, 2, 5])
    got = lab.grouped_gemm(x, w, offsets, out=far_apart(5, 4))
    hint = "a group's number times w_group_stride passes 2**31: `.to(tl.int64)` before the multiplication"
    assert_product(got, each_group(x, values, offsets), "each group's product", "W[g] 2**30 elements apart", hint)
    w, values, offsets = far_apart(386, 16)[None], random(1, 386, 16, dtype=torch.float16), torch.tensor([0, 5])
    w.copy_(values)
    got = lab.grouped_gemm(x, w, offsets, out=far_apart(5, 386))
    said = "W [1, 386, 16], rows 2**23 - 16 elements apart"
    assert_product(got, each_group(x, values, offsets), "the one group's product", said, WIDE)


@counted
@checks("grouped_gemm")
def test_rows_of_groups_beyond_two_to_the_31(lab):
    x, out = far_apart(386, 16), far_apart(386, 16)
    values, w = random(386, 16, dtype=torch.float16), random(2, 16, 16, dtype=torch.float16)
    x.copy_(values)
    offsets = torch.tensor([0, 300, 386], dtype=torch.int32)
    said = "groups of 300 and 86 rows, x and out with rows 2**23 - 16 elements apart, int32 offsets"
    lab.grouped_gemm(x, w, offsets, out=out)
    assert_product(out.clone(), each_group(values, w, offsets), "each group's product", said, WIDE)


@counted
@checks("grouped_gemm")
@pytest.mark.parametrize("group_rows", [[5, 0, 17, 0, 1], [40, 40]], ids=str)
def test_weights_of_empty_groups_are_not_touched(lab, group_rows):
    n, k = 128, 64
    x, w, offsets = grouped(group_rows, n, k, torch.bfloat16)
    x, out = sliced(x)[0], sliced(torch.zeros(len(x), n).bfloat16())[0]
    blocks = grouped_gemm_blocks(len(x), len(group_rows))
    said = f"groups of {group_rows} rows, N, K = {n}, {k}, bfloat16, tiles of {blocks['BLOCK_M']} x {blocks['BLOCK_N']}"
    with launches() as launched:
        report = moved(lambda: lab.grouped_gemm(x, w, offsets, out=out), said, x=x, w=w, offsets=offsets, out=out)
    hint = "all groups in one launch: a loop over groups on the host has to wait for the offsets, and launches each by itself"
    assert_equal(len(launched), 1, "launches", inputs=said, hint=hint)
    needed = sum(rows > 0 for rows in group_rows) * n * k * 2
    hint = "a program computes with the weights of its own group, and ends if it has none"
    assert_equal(report["w"].unique_load_bytes, needed, "different bytes loaded of W", inputs=said, hint=f"{hint}\n{report}")
    tiles = sum(-(-rows // blocks["BLOCK_M"]) for rows in group_rows)
    columns = n // blocks["BLOCK_N"]
    assert_at_most(report["w"].load_bytes, tiles * n * k * 2, "bytes loaded of W", said, hint, report)
    hint = "a block of x serves all columns of its tile, and is loaded once"
    assert_at_most(report["x"].load_bytes, tiles * columns * blocks["BLOCK_M"] * k * 2, "bytes loaded of x", said, hint, report)
    hint = "without add, out is written once and not read; a row by the tile of its own group only"
    assert_at_most(report["out"].bytes, out.numel() * 2, "bytes of out", said, hint, report)
    programs = min(len(x), -(-len(x) // blocks["BLOCK_M"]) + len(group_rows)) * columns
    hint = "one load of all that begin, one of all that end; what a program needs of them it picks from the block"
    assert_at_most(report["offsets"].bytes, programs * 2 * offsets.nbytes, "bytes of offsets", said, hint, report)


@checks("grouped_gemm")
def test_grouped_gemm_compiles_for_tensor_cores_without_spills(lab):
    arguments = grouped([16, 16], 64, 64, torch.bfloat16)
    assert_compiles(lambda: lab.grouped_gemm(*arguments), "grouped_gemm of 2 groups of 16 rows, bfloat16, RTX 4090")
