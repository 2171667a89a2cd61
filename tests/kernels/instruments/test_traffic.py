"""Traffic against kernels whose bytes are counted by hand."""

import pytest
import torch
from minillm.kernels.runtime import INTERPRETED, tl, triton

if not INTERPRETED:
    pytest.skip("traffic is counted in the interpreter", allow_module_level=True)

from minillm.kernels.instruments import traffic
from minillm.kernels.instruments.traffic import trace


@triton.jit
def copy_kernel(x, out, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride, mask=i < n), mask=i < n)


@triton.jit
def naive_softmax_kernel(x, out, n, BLOCK: tl.constexpr):
    """Reads the row for its maximum, for its sum, and for the quotient."""
    i = tl.program_id(0) * n + tl.arange(0, BLOCK)
    on = tl.arange(0, BLOCK) < n
    top = tl.max(tl.load(x + i, mask=on, other=float("-inf")))
    total = tl.sum(tl.exp(tl.load(x + i, mask=on, other=float("-inf")) - top))
    tl.store(out + i, tl.exp(tl.load(x + i, mask=on) - top) / total, mask=on)


@triton.jit
def gemm_kernel(a, b, c, M, N, K, T: tl.constexpr):
    m, n = tl.program_id(0) * T + tl.arange(0, T), tl.program_id(1) * T + tl.arange(0, T)
    total = tl.zeros([T, T], tl.float32)
    for start in range(0, K, T):
        k = start + tl.arange(0, T)
        total += tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def count_kernel(index, counts, N: tl.constexpr):
    tl.atomic_add(counts + tl.load(index + tl.arange(0, N)), 1)


@triton.jit
def lock_kernel(lock, out):
    tl.store(out, tl.atomic_cas(lock, 0, 1))


@triton.jit
def descriptor_kernel(x, out, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [B, B])
    at = tl.program_id(0) * B
    target.store([at, 0], source.load([at, 0]))


@triton.jit
def through_pointer_kernel(pointers, out, N: tl.constexpr):
    x = tl.load(pointers).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@triton.jit
def transpose_kernel(x, out, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + j * N + i, tl.load(x + i * N + j))


def copied(x, stride=1, n=None, dtype=None):
    n = n or x.numel() // stride
    out = torch.zeros(n, dtype=dtype or x.dtype)
    with trace(x=x, out=out) as counted:
        copy_kernel[(triton.cdiv(n, 64),)](x, out, n, stride, BLOCK=64)
    return counted.report()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.float8_e5m2])
def test_a_copy_moves_each_byte_once(dtype):
    report = copied(torch.zeros(100, dtype=dtype))  # the second program's mask leaves 36 of 64 lanes on
    size = 100 * dtype.itemsize
    assert report["x"] == traffic.Traffic(
        load_bytes=size, unique_load_bytes=size, sectors=report["x"].sectors, fewest_sectors=report["x"].fewest_sectors
    )
    assert (report["out"].store_bytes, report["out"].unique_store_bytes, report["out"].load_bytes) == (size, size, 0)
    assert (report.load_bytes, report.store_bytes, report.total.bytes) == (size, size, 2 * size)


def test_naive_softmax_loads_its_row_three_times():
    x, out = torch.randn(4, 50), torch.empty(4, 50)
    with trace(x=x, out=out) as counted:
        naive_softmax_kernel[(4,)](x, out, 50, BLOCK=64)
    report = counted.report()
    assert (report["x"].load_bytes, report["x"].unique_load_bytes, report["x"].reuse) == (3 * 800, 800, 3.0)
    assert report["out"].store_bytes == 800
    torch.testing.assert_close(out, x.softmax(-1))


def test_gemm_loads_two_n_cubed_over_the_tile():
    n, tile = 64, 16
    a, b, c = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    with trace(a=a, b=b, c=c) as counted:
        gemm_kernel[(n // tile, n // tile)](a, b, c, n, n, n, T=tile)
    report = counted.report()
    assert report.load_bytes == 2 * n**3 * 4 // tile
    assert report["a"].reuse == report["b"].reuse == n / tile
    assert report["c"].store_bytes == report["c"].unique_store_bytes == n * n * 4


def test_atomics_count_once_and_change_what_they_touch():
    index, counts = torch.tensor([0, 0, 1, 3]), torch.zeros(8, dtype=torch.int32)
    with trace(index=index, counts=counts) as counted:
        count_kernel[(1,)](index, counts, 4)
    got = counted.report()["counts"]
    assert (got.load_bytes, got.store_bytes, got.atomic_bytes, got.unique_store_bytes) == (0, 0, 4 * 4, 3 * 4)
    assert counts.tolist() == [2, 1, 0, 1, 0, 0, 0, 0]


def test_bfloat16_atomics_are_not_also_loads():
    index, counts = torch.tensor([0, 0, 1, 3]), torch.zeros(8, dtype=torch.bfloat16)
    with trace(counts=counts) as counted:
        count_kernel[(1,)](index, counts, 4)
    got = counted.report()["counts"]
    assert (got.load_bytes, got.store_bytes, got.atomic_bytes) == (0, 0, 8)


def test_compare_and_swap():
    lock, out = torch.zeros(1, dtype=torch.int32), torch.empty(1, dtype=torch.int32)
    with trace(lock=lock) as counted:
        lock_kernel[(1,)](lock, out)
    assert counted.report()["lock"].atomic_bytes == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensor_descriptors_leave_out_what_lies_beyond_the_edge(dtype):
    x, out = torch.zeros(24, 16, dtype=dtype), torch.empty(24, 16, dtype=dtype)
    with trace(x=x, out=out) as counted:
        descriptor_kernel[(2,)](x, out, 24, 16, B=16)  # the second block's last 8 rows do not exist
    report = counted.report()
    assert report["x"].load_bytes == report["out"].store_bytes == 24 * 16 * dtype.itemsize


def test_side_by_side_lanes_coalesce():
    report = copied(torch.zeros(128))
    assert (report["x"].sectors, report["x"].coalescing) == (128 * 4 // 32, 1.0)


@pytest.mark.parametrize("stride, share", [(2, 1 / 2), (4, 1 / 4), (8, 1 / 8), (100, 1 / 8)])
def test_strided_lanes_waste_sectors(stride, share):
    """float32: 8 neighbours share a sector; from a stride of 8 on, each has its own."""
    report = copied(torch.zeros(128 * stride), stride=stride)
    assert report["x"].coalescing == share
    assert report["out"].coalescing == 1.0


def test_warps_lie_along_the_closest_addresses():
    x, out = torch.zeros(32, 32), torch.zeros(32, 32)
    with trace(x=x, out=out) as counted:
        transpose_kernel[(1,)](x, out, 32)  # the store's second axis is the one with stride 32
    assert counted.report()["out"].coalescing == counted.report()["x"].coalescing == 1.0


def test_interleaved_views_are_told_apart():
    cache = torch.zeros(4, 2, 32)
    keys, values = cache[:, 0], cache[:, 1]  # their address ranges overlap
    with trace(keys=keys, values=values) as counted:
        copy_kernel[(1,)](cache, torch.empty(64), 64, 1, BLOCK=64)
    report = counted.report()
    assert report["keys"].load_bytes == report["values"].load_bytes == 32 * 4


def test_arguments_without_a_name_go_by_the_kernels():
    with trace() as counted:
        for _ in range(2):
            copy_kernel[(1,)](torch.zeros(64), torch.empty(64), 64, 1, BLOCK=64)
    assert {name: t.bytes for name, t in counted.report().tensors.items()} == dict.fromkeys(["x", "out", "x_2", "out_2"], 256)


def test_memory_behind_a_pointer_is_counted_too():
    hidden, out = torch.arange(16.0), torch.empty(16)
    with trace() as counted:
        through_pointer_kernel[(1,)](torch.tensor([hidden.data_ptr()]), out, 16)
    report = counted.report()
    assert torch.equal(out, hidden)
    assert (report["(others)"].load_bytes, report["(others)"].unique_load_bytes) == (64, 64)


def test_an_untouched_or_empty_tensor_has_zeros():
    with trace(idle=torch.zeros(3), empty=torch.empty(0)) as counted:
        pass
    assert counted.report()["idle"] == counted.report()["empty"] == traffic.Traffic()
    assert counted.report().total.coalescing == 1.0


def test_traces_nest_and_end():
    x, out = torch.zeros(64), torch.empty(64)
    with trace(x=x) as outer:
        with trace(x=x) as inner:
            copy_kernel[(1,)](x, out, 64, 1, BLOCK=64)
        copy_kernel[(1,)](x, out, 64, 1, BLOCK=64)
    copy_kernel[(1,)](x, out, 64, 1, BLOCK=64)
    assert (inner.report()["x"].load_bytes, outer.report()["x"].load_bytes) == (256, 512)


def test_a_failing_kernel_leaves_no_trace():
    from triton.runtime import interpreter

    with pytest.raises(RuntimeError, match="mine"), trace():
        raise RuntimeError("mine")
    assert vars(interpreter.interpreter_builder).get("create_masked_load") is None


def test_the_report_prints_a_table():
    lines = str(copied(torch.zeros(1024))).splitlines()
    assert lines[0].split() == ["tensor", "loaded", "unique", "reuse", "stored", "unique", "atomic", "coalescing"]
    assert lines[1].split() == ["x", "4,096", "4,096", "1.00x", "0", "0", "0", "100%"]
    assert [line.split()[0] for line in lines] == ["tensor", "x", "out", "total"]
    assert len({len(line) for line in lines}) == 1


def test_it_refuses_to_count_on_a_gpu(monkeypatch):
    monkeypatch.setattr(traffic, "INTERPRETED", False)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"), trace():
        pass
