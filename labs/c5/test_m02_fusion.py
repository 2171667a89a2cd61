"""Checks of 5.2: values against torch's own operators, memory around the results, bytes moved, what a compiler makes of it."""

import pytest
import torch
import torch.nn.functional as F

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal

pytest.importorskip("triton", reason="the kernels need Triton, which exists for Linux only")

from minillm.kernels.instruments.traffic import trace

from labs.kit.kernel_checks import (
    DEVICE,
    DTYPES,
    MASKS,
    ONCE,
    assert_compiles,
    assert_guards,
    assert_moved,
    assert_rounded,
    counted,
    guarded,
    random,
)
from minillm.model.ops import rope as torch_rope

EPS = 1e-5


# -------------------------------------------------------------------------------------------------------------------- rms_norm


def norm(total, weight):
    """As transformers has it."""
    x = total.float()
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)).to(total.dtype) * weight


@checks("rms_norm")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 100), (1, 1), (3, 2, 576)], ids=str)
def test_norm_alone(lab, shape, dtype):
    x, weight = random(*shape, dtype=dtype, scale=3), random(shape[-1], dtype=dtype)
    before, (out, wide) = x.clone(), guarded(torch.zeros_like(x))
    y = lab.rms_norm(x, weight, EPS, out=out)
    said = f"x {list(shape)}, {dtype}; out is a slice of a wider tensor"
    assert_guards(wide, out, "out", said)
    hint = "mean over the length, not over BLOCK; eps inside the root; the quotient is rounded before it meets the weight"
    assert_rounded(y, norm(before, weight), "the norm", said, hint)
    assert_equal(y is out, True, "whether `out` is returned", inputs=said)
    assert_close(x, before, "x afterwards", atol=0, rtol=0, inputs=said, hint="only out=x overwrites x")


@checks("rms_norm")
@pytest.mark.parametrize("heads", [slice(0, 4), slice(4, 6)], ids=["q", "k"])
def test_heads_of_a_fused_tensor(lab, heads):
    """As Qwen3 normalises q and k, where they lie; here with something between heads, too."""
    fused, weight = random(3, 8, 60, dtype=torch.bfloat16), random(40, dtype=torch.bfloat16)
    x = fused[:, heads, :40]
    y = lab.rms_norm(x, weight, EPS)
    said = f"x {list(x.shape)}, a slice of [3, 8, 60] bfloat16, no out"
    hint = "x's row (i, j) begins at i * x_stride + j * x_inner_stride; the result's rows lie side by side"
    assert_rounded(y, norm(x, weight), "the norm", said, hint)
    assert_equal(y.is_contiguous(), True, "whether the result is contiguous", inputs=said)


@checks("rms_norm")
def test_norm_in_place(lab):
    values, weight = random(3, 100), random(100)
    (x, wide) = guarded(values)
    y = lab.rms_norm(x, weight, EPS, out=x)
    assert_close(x, norm(values, weight), "x afterwards", atol=1e-5, rtol=1e-5, inputs="out=x, [3, 100]")
    assert_guards(wide, x, "x", "out=x, [3, 100]")
    assert_equal(y is x, True, "whether x itself is returned")


@checks("rms_norm")
@pytest.mark.parametrize("value", [6e4, 1e-3])
def test_large_and_small_rows(lab, value):
    x = torch.full((1, 64), value, device=DEVICE).half()
    hint = "60,000² is past float16's largest number: convert to float32 before squaring; and it is sqrt(mean + eps)"
    y = lab.rms_norm(x, torch.ones_like(x[0]), EPS)
    assert_close(y, norm(x, 1), f"the norm of 64 times {value:g}", atol=1e-3, rtol=1e-2, inputs="float16", hint=hint)


@checks("rms_norm")
@pytest.mark.parametrize("shape", [(0, 8), (2, 0)], ids=str)
def test_norm_of_nothing(lab, shape):
    assert_equal(list(lab.rms_norm(random(*shape), random(shape[-1]), EPS).shape), list(shape), "the shape")


@counted
@checks("rms_norm")
def test_rms_norm_moves_each_byte_once(lab):
    x, weight = random(3, 1000, dtype=torch.bfloat16), random(1000, dtype=torch.bfloat16)
    out, size = torch.empty(3, 1024).bfloat16()[:, :1000], x.numel() * 2
    with trace(x=x, weight=weight, out=out) as traffic:
        lab.rms_norm(x, weight, EPS, out=out)
    assert_moved(traffic.report(), {"x": (size, 0), "weight": (size, 0), "out": (0, size)}, "3 rows of 1,000 bfloat16")


@checks("rms_norm")
def test_rms_norm_compiles_without_spills(lab):
    x, weight = random(1, 4096, dtype=torch.bfloat16), random(4096, dtype=torch.bfloat16)
    assert_compiles(lambda: lab.rms_norm(x, weight, EPS), "rms_norm of 4,096 bfloat16, RTX 4090")


# ---------------------------------------------------------------------------------------------------------------- add_rms_norm


@checks("add_rms_norm")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 100), (1, 1), (3, 2, 576), (2, 16)], ids=str)
def test_sum_and_norm(lab, shape, dtype):
    x, residual, weight = random(*shape, dtype=dtype), random(*shape, dtype=dtype, scale=3), random(shape[-1], dtype=dtype)
    (out, wide), (total, wide_total) = guarded(torch.zeros_like(x)), guarded(torch.zeros_like(x))
    y, summed = lab.add_rms_norm(x.clone(), residual.clone(), weight, EPS, out=out, residual_out=total)
    said = f"x, residual {list(shape)}, {dtype}; out and residual_out are slices of wider tensors"
    assert_guards(wide, out, "out", said)
    assert_guards(wide_total, total, "residual_out", said)
    expected = residual + x
    assert_close(summed, expected, "the new residual", atol=0, rtol=0, inputs=said, hint="residual + x, rounded, before any norm")
    hint = "mean over the length, not over BLOCK; eps inside the root; the norm is of the rounded sum, the quotient is rounded"
    assert_rounded(y, norm(expected, weight), "the norm", said, hint)
    assert_equal((y is out, summed is total), (True, True), "whether `out` and `residual_out` are returned", inputs=said)


@checks("add_rms_norm")
def test_new_tensors_and_inputs_that_stay(lab):
    x, residual, weight = random(4, 64), random(4, 64), random(64)
    before = x.clone(), residual.clone()
    y, total = lab.add_rms_norm(x, residual, weight, EPS)
    assert_close(y, norm(residual + x, weight), "the norm", atol=1e-5, rtol=1e-5, inputs="[4, 64], no out")
    assert_close(total, residual + x, "the new residual", atol=0, rtol=0, inputs="[4, 64], no residual_out")
    for name, now, then in (("x", x, before[0]), ("residual", residual, before[1])):
        assert_close(
            now, then, f"{name} afterwards", atol=0, rtol=0, hint="without out= and residual_out= inputs stay as they are"
        )


@checks("add_rms_norm")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_squares_are_summed_in_float32(lab, dtype):
    x = torch.full((1, 64), 6e4, device=DEVICE).to(dtype)
    y, _ = lab.add_rms_norm(x, torch.zeros_like(x), torch.ones_like(x[0]), EPS)
    hint = "60,000² is past float16's largest number, 65,504: convert to float32 before squaring"
    assert_close(y, torch.ones_like(x), "the norm of 64 times 60,000", atol=1e-2, rtol=0, inputs=str(dtype), hint=hint)


@checks("add_rms_norm")
def test_small_rows_feel_eps(lab):
    x = torch.full((1, 32), 1e-3, device=DEVICE)
    y, _ = lab.add_rms_norm(x, torch.zeros_like(x), torch.ones_like(x[0]), EPS)
    expected = torch.full_like(x, 1e-3 / (1e-6 + EPS) ** 0.5)
    assert_close(y, expected, "the norm of 32 times 0.001", atol=1e-5, rtol=1e-4, hint="sqrt(mean + eps)")
    y, _ = lab.add_rms_norm(x, -x, torch.ones_like(x[0]), EPS)
    assert_close(y, torch.zeros_like(x), "the norm of a row of zeros", atol=0, rtol=0, hint="eps keeps it from 0 / 0")


@checks("add_rms_norm")
def test_rows_of_wider_tensors(lab):
    wide, other, weight = random(5, 320), random(5, 300), random(100)
    x, residual = wide[:, 40:140], other[:, 7:107]
    y, total = lab.add_rms_norm(x, residual, weight, EPS, out=wide[:, 140:240], residual_out=other[:, 150:250])
    said = "x, residual and results [5, 100], slices of tensors [5, 320] and [5, 300]"
    assert_close(total, residual + x, "the new residual", atol=0, rtol=0, inputs=said, hint="each tensor has its own row stride")
    assert_close(
        y, norm(residual + x, weight), "the norm", atol=1e-5, rtol=1e-4, inputs=said, hint="each tensor has its own row stride"
    )


@checks("add_rms_norm")
def test_in_place(lab):
    values, weight = (
        (random(3, 576, dtype=torch.bfloat16), random(3, 576, dtype=torch.bfloat16)),
        random(576, dtype=torch.bfloat16),
    )
    (x, _), (residual, _) = map(guarded, values)
    y, total = lab.add_rms_norm(x, residual, weight, EPS, out=x, residual_out=residual)
    said = "out=x, residual_out=residual, [3, 576] bfloat16"
    assert_close(
        residual, values[1] + values[0], "residual afterwards", atol=0, rtol=0, inputs=said, hint="the sum belongs there"
    )
    assert_rounded(x, norm(values[1] + values[0], weight), "x afterwards", said, "the norm belongs there")
    assert_equal((y is x, total is residual), (True, True), "whether x and residual themselves are returned", inputs=said)


@checks("add_rms_norm")
@pytest.mark.parametrize("shape", [(0, 8), (2, 0), (0,)], ids=str)
def test_nothing_in_nothing_out(lab, shape):
    x = random(*shape)
    got = [list(each.shape) for each in lab.add_rms_norm(x, x.clone(), random(shape[-1]), EPS)]
    assert_equal(got, [list(shape)] * 2, "the shapes", inputs=f"x of {list(shape)}")


@counted
@checks("add_rms_norm")
def test_add_rms_norm_moves_each_byte_once(lab):
    x, residual, weight = (random(*shape, dtype=torch.bfloat16) for shape in ((3, 1000), (3, 1000), (1000,)))
    out, total = torch.empty(3, 1024).bfloat16()[:, :1000], torch.empty(3, 1024).bfloat16()[:, :1000]
    with trace(x=x, residual=residual, weight=weight, out=out, residual_out=total) as traffic:
        lab.add_rms_norm(x, residual, weight, EPS, out=out, residual_out=total)
    size = x.numel() * 2
    expected = {"x": (size, 0), "residual": (size, 0), "weight": (size, 0), "out": (0, size), "residual_out": (0, size)}
    assert_moved(traffic.report(), expected, "3 rows of 1,000 bfloat16")


@checks("add_rms_norm")
def test_add_rms_norm_compiles_without_spills(lab):
    x, residual, weight = (random(*shape, dtype=torch.bfloat16) for shape in ((1, 4096), (1, 4096), (4096,)))
    assert_compiles(lambda: lab.add_rms_norm(x, residual, weight, EPS), "add_rms_norm of 4,096 bfloat16, RTX 4090")


# -------------------------------------------------------------------------------------------------------------------- silu_mul


@checks("silu_mul")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 100), (1, 1), (3, 1536), (2, 3, 1100)], ids=str)
def test_silu_of_gate_times_up(lab, shape, dtype):
    gate, up = random(*shape, dtype=dtype, scale=4), random(*shape, dtype=dtype)
    out, wide = guarded(torch.zeros_like(gate))
    y = lab.silu_mul(gate.clone(), up.clone(), out=out)
    said = f"gate, up {list(shape)}, {dtype}; out is a slice of a wider tensor"
    assert_guards(wide, out, "out", said)
    hint = "gate / (1 + exp(-gate)) in float32, rounded before it meets up; rows of more than 1,024 take several programs"
    assert_rounded(y, F.silu(gate) * up, "silu(gate) * up", said, hint)
    assert_equal(y is out, True, "whether `out` is returned", inputs=said)


@checks("silu_mul")
@pytest.mark.parametrize("shape", [(3, 64), (2, 2, 512)], ids=str)
def test_both_halves_of_one_tensor(lab, shape):
    fused = random(*shape)
    half = shape[-1] // 2
    before = fused.clone()
    said, hint = f"gate {list(shape)}, no up", "gate is the first half of the last dimension, up the second; rows lie 2·I apart"
    expected = F.silu(fused[..., :half]) * fused[..., half:]
    assert_close(lab.silu_mul(fused), expected, "silu_mul(fused)", atol=1e-6, rtol=1e-5, inputs=said, hint=hint)
    assert_close(fused, before, "the input afterwards", atol=0, rtol=0, inputs=said)


@checks("silu_mul")
@pytest.mark.parametrize("into", ["gate", "up"])
def test_into_an_input(lab, into):
    fused, wide = guarded(random(3, 400, dtype=torch.bfloat16))
    gate, up = fused[:, :200], fused[:, 200:]
    expected, other = F.silu(gate) * up, (up if into == "gate" else gate).clone()
    y = lab.silu_mul(gate, up, out=gate if into == "gate" else up)
    said = f"out is {into}, one half of a tensor [3, 400]"
    hint = "load both before anything is stored: the store may overwrite what the load has yet to read"
    assert_rounded(y, expected, "silu(gate) * up", said, hint)
    assert_close(up if into == "gate" else gate, other, "the other half afterwards", atol=0, rtol=0, inputs=said, hint=MASKS)
    assert_guards(wide, fused, "the tensor", said)


@checks("silu_mul")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gates_of_any_size(lab, dtype):
    gate = torch.tensor([[-1000.0, -90.0, -30.0, 0.0, 30.0, 90.0, 1000.0, 500.0] * 2], device=DEVICE).to(dtype)
    up = torch.full_like(gate, 2.0)
    hint = "exp(gate) overflows at 89 and inf / inf is NaN; exp(-gate) may overflow too, but x / inf is 0"
    got = lab.silu_mul(gate, up)
    assert_close(got, F.silu(gate) * up, "silu(gate) * 2", atol=1e-7, rtol=1e-2, inputs=str(gate[0, :8].tolist()), hint=hint)


@checks("silu_mul")
@pytest.mark.parametrize("shape", [(0, 8), (2, 0)], ids=str)
def test_silu_mul_of_nothing(lab, shape):
    assert_equal(list(lab.silu_mul(random(*shape), random(*shape)).shape), list(shape), "the shape", inputs=f"gate {list(shape)}")


@counted
@checks("silu_mul")
def test_silu_mul_moves_each_byte_once(lab):
    fused, out = random(3, 3000, dtype=torch.bfloat16), torch.empty(3, 2048).bfloat16()[:, :1500]
    with trace(fused=fused, out=out) as traffic:
        lab.silu_mul(fused, out=out)
    assert_moved(traffic.report(), {"fused": (3 * 3000 * 2, 0), "out": (0, 3 * 1500 * 2)}, "3 rows of 2 * 1,500 bfloat16")


@checks("silu_mul")
def test_silu_mul_compiles_without_spills(lab):
    fused = random(1, 28672, dtype=torch.bfloat16)
    found = assert_compiles(lambda: lab.silu_mul(fused), "silu_mul of 14,336 bfloat16, RTX 4090")
    said = f"silu_mul: loads of {found.widest_load} bits a thread; neighbouring lanes must load neighbouring elements\n{found}"
    assert found.widest_load == 128, said


# ------------------------------------------------------------------------------------------------------------------------ rope


def angles(tokens, half, dtype):
    phase = 100 * torch.randn(tokens, half)
    return phase.cos().to(dtype).to(DEVICE), phase.sin().to(dtype).to(DEVICE)


@checks("rope")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(3, 9, 3, 64), (2, 5, 5, 80), (1, 1, 1, 2), (2, 17, 2, 6), (1, 32, 8, 128)], ids=str)
def test_slices_of_a_fused_tensor_in_place(lab, sizes, dtype):
    tokens, num_q_heads, num_k_heads, head_dim = sizes
    values = random(tokens, num_q_heads + 2 * num_k_heads, head_dim, dtype=dtype)
    fused, wide = guarded(values, inner=2)
    q, k, v = fused.split([num_q_heads, num_k_heads, num_k_heads], dim=1)
    cos, sin = angles(tokens, head_dim // 2, dtype)
    q_out, k_out = lab.rope(q, k, cos, sin, inplace=True)
    said = f"T, Hq, Hk, D = {sizes}, {dtype}; q and k are slices of one tensor [T, Hq + 2 Hk, D], in place"
    old_q, old_k, old_v = values.split([num_q_heads, num_k_heads, num_k_heads], dim=1)
    assert_close(v, old_v, "v, which lies behind k, afterwards", atol=0, rtol=0, inputs=said, hint=MASKS)
    assert_guards(wide, fused, "q, k and v", said, inner=2)
    hint = "both halves are needed for both results: load both before either is stored. Products are rounded, then added"
    for name, out, old in (("q", q_out, old_q), ("k", k_out, old_k)):
        assert_close(
            out, torch_rope(old, cos, sin), f"{name}'", atol=1e-6 * (dtype == torch.float32), rtol=0, inputs=said, hint=hint
        )
    same = (q_out.data_ptr(), k_out.data_ptr()) == (q.data_ptr(), k.data_ptr())
    assert_equal(same, True, "whether q and k themselves are returned", inputs=said)


@checks("rope")
def test_as_complex_numbers(lab):
    """The rotation from its definition: a pair is a complex number, and is multiplied by e^(i·angle)."""
    q, k, phase = random(4, 3, 32), random(4, 1, 32), torch.randn(4, 16, device=DEVICE).double()
    before = q.clone(), k.clone()
    got = lab.rope(q, k, phase.cos().float(), phase.sin().float())
    for name, out, x in zip("qk", got, before, strict=True):
        turned = torch.complex(*x.double().chunk(2, -1)) * torch.polar(torch.ones_like(phase), phase)[:, None]
        expected = torch.cat([turned.real, turned.imag], -1).float()
        hint = "pairs are (i, i + D/2); first' = first cos - second sin, second' = second cos + first sin"
        assert_close(out, expected, f"{name}'", atol=1e-5, rtol=1e-5, inputs="4 tokens, heads of 32, new tensors", hint=hint)
        assert_equal(out.is_contiguous(), True, f"whether {name}' is contiguous")
    for name, now, then in zip("qk", (q, k), before, strict=True):
        assert_close(now, then, f"{name} afterwards", atol=0, rtol=0, hint="without inplace=True inputs stay as they are")


@checks("rope")
def test_slices_of_a_fused_tensor_into_new_ones(lab):
    fused = random(5, 8, 32, dtype=torch.bfloat16)
    q, k = fused[:, :4], fused[:, 4:6]
    cos, sin = angles(5, 16, torch.bfloat16)
    for name, out, x in zip("qk", lab.rope(q, k, cos, sin), (q, k), strict=True):
        hint = "an input and its result have strides of their own"
        assert_close(out, torch_rope(x, cos, sin), f"{name}'", atol=0, rtol=0, inputs="slices of [5, 8, 32]", hint=hint)
        assert_equal(out.is_contiguous(), True, f"whether {name}' is contiguous")


@checks("rope")
@pytest.mark.parametrize("sizes", [(0, 2, 1, 32), (2, 3, 0, 32)], ids=str)
def test_no_tokens_or_no_keys(lab, sizes):
    tokens, num_q_heads, num_k_heads, head_dim = sizes
    q, k = random(tokens, num_q_heads, head_dim), random(tokens, num_k_heads, head_dim)
    cos, sin = angles(tokens, head_dim // 2, torch.float32)
    got = lab.rope(q, k, cos, sin)
    assert_close(got[0], torch_rope(q, cos, sin), "q'", atol=1e-6, rtol=0, inputs=f"T, Hq, Hk, D = {sizes}")
    assert_equal(list(got[1].shape), list(k.shape), "the shape of k'", inputs=f"T, Hq, Hk, D = {sizes}")


@counted
@checks("rope")
@pytest.mark.parametrize("inplace", [True, False])
def test_rope_moves_each_byte_once(lab, inplace):
    tokens, num_q_heads, num_k_heads, head_dim = 3, 9, 3, 64
    fused = random(tokens, num_q_heads + 2 * num_k_heads, head_dim, dtype=torch.bfloat16)
    q, k = fused[:, :num_q_heads], fused[:, num_q_heads : num_q_heads + num_k_heads]
    cos, sin = angles(tokens, head_dim // 2, torch.bfloat16)
    with trace(fused=fused, cos=cos, sin=sin) as traffic:
        lab.rope(q, k, cos, sin, inplace=inplace)
    report, what = traffic.report(), f"3 tokens, 9 + 3 heads of 64 bfloat16, inplace={inplace}"
    assert report.total.bytes, f"{what}: no kernel asked for a byte; the work must be done by your Triton kernel, not by torch"
    size = tokens * (num_q_heads + num_k_heads) * head_dim * 2
    loaded = report.load_bytes - report["cos"].load_bytes - report["sin"].load_bytes
    assert_equal(loaded, size, "bytes loaded of q and k", inputs=what, hint=f"each pair serves both results. {ONCE}\n{report}")
    assert_equal(
        report.store_bytes, size, "bytes stored", inputs=what, hint=f"each result once, k by k's programs only:\n{report}"
    )
    for name in ("cos", "sin"):
        t, once = report[name], tokens * head_dim // 2 * 2
        assert_equal(
            t.unique_load_bytes, once, f"different bytes of {name}", inputs=what, hint=f"each token has its row\n{report}"
        )
        allowed = t.load_bytes <= once * (num_q_heads + num_k_heads)
        assert allowed, f"{what}: {t.load_bytes} bytes loaded of {name}; at most once a head is {once * 12}\n{report}"


@checks("rope")
def test_rope_compiles_without_spills(lab):
    q, k = random(1, 32, 128, dtype=torch.bfloat16), random(1, 8, 128, dtype=torch.bfloat16)
    cos, sin = angles(1, 64, torch.bfloat16)
    assert_compiles(lambda: lab.rope(q, k, cos, sin), "rope of 32 + 8 heads of 128 bfloat16, RTX 4090")
