"""Checks of the roofline: known work on known cards, what must hold of any machine, and attention counted pair by pair."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal, assert_raises

# name: FLOP/s, bytes/s; dense, from vendors' tables (shared/hardware.toml says which)
MACHINES = {
    "RTX 4090, bf16": (165.2e12, 1.008e12),
    "RTX 4090, fp8 into fp32": (330.3e12, 1.008e12),
    "H100 SXM, bf16": (989.4e12, 3.35e12),
    "a core of a CPU": (90e9, 25e9),
}
N = 4096
WORK = {  # name: FLOPs, bytes, FLOP/byte
    "a matrix times a vector, bf16": (2 * N**2, 2 * (N**2 + 2 * N), 0.999512),
    "the same, weights of 4 bit": (2 * N**2, N**2 / 2 + 4 * N, 3.992196),
    "a product of two square matrices, bf16": (2 * N**3, 6 * N**2, 1365.333),
    "adding two vectors, fp32": (1000, 12_000, 0.0833333),
    "a copy": (0, 8_000, 0),
    "one FLOP for three bytes": (1, 3, 0.333333),
}
SIZE = st.floats(1e-3, 1e15)


def number(call, said):
    """call()'s result; a message instead of a crash where it refuses what is allowed."""
    try:
        return call()
    except (ValueError, ZeroDivisionError) as e:
        raise AssertionError(f"{said}: this is allowed, and was refused: {type(e).__name__}: {e}") from e


@checks("arithmetic_intensity")
@pytest.mark.parametrize("name", WORK)
def test_known_work(lab, name):
    flops, moved, expected = WORK[name]
    said = f"arithmetic_intensity({flops:,}, {moved:,}) ({name})"
    hint = "FLOPs over bytes: not bytes over FLOPs, not bits, a multiply-add is already two FLOPs; a part of a FLOP counts"
    assert_close(number(lambda: lab.arithmetic_intensity(flops, moved), said), expected, said, atol=0, rtol=1e-5, hint=hint)


@checks("arithmetic_intensity")
@given(flops=SIZE, moved=SIZE)
def test_twice_the_work_has_the_same_intensity(lab, flops, moved):
    once, twice = lab.arithmetic_intensity(flops, moved), lab.arithmetic_intensity(2 * flops, 2 * moved)
    said = f"{flops:g} FLOPs and {moved:g} bytes, then twice as many of both"
    assert_close(
        twice, once, "arithmetic_intensity", atol=0, rtol=1e-9, inputs=said, hint="a ratio: doing it twice changes nothing"
    )
    assert_close(
        once * moved, flops, "intensity times bytes", atol=0, rtol=1e-9, inputs=said, hint="FLOP/byte times bytes is FLOPs"
    )


@checks("arithmetic_intensity")
@pytest.mark.parametrize("args", [(-1, 10), (-1.0, -1.0), (1, 0), (0, 0), (1, -2), (math.nan, 1), (1, math.nan)], ids=str)
def test_impossible_work_is_refused(lab, args):
    hint = "negative FLOPs, or no bytes at all, are a mistake of the caller: say so at once (no ZeroDivisionError)"
    assert_raises(ValueError, lambda: lab.arithmetic_intensity(*args), f"arithmetic_intensity{args}", hint=hint)


@checks("attainable")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("share", [0.001, 0.25, 0.999, 1.0, 1.001, 4, 1000])
def test_the_roof(lab, machine, share):
    peak, bandwidth = MACHINES[machine]
    intensity = share * peak / bandwidth
    expected = peak if share >= 1 else share * peak
    said = f"attainable({intensity:.6g}, {peak:.4g}, {bandwidth:.4g}) ({machine}, {share:g} times the ridge)"
    hint = "left of the ridge intensity times bandwidth, right of it the peak: the lower of the two, everywhere"
    assert_close(number(lambda: lab.attainable(intensity, peak, bandwidth), said), expected, said, atol=0, rtol=1e-9, hint=hint)


@checks("attainable")
@given(intensity=st.floats(1e-3, 1e6), peak=SIZE, bandwidth=SIZE)
def test_neither_ceiling_is_passed_and_one_is_touched(lab, intensity, peak, bandwidth):
    got = lab.attainable(intensity, peak, bandwidth)
    said = f"intensity {intensity:g}, peak {peak:g}, bandwidth {bandwidth:g}: got {got!r}"
    small = 1 + 1e-9
    assert_equal(got <= peak * small, True, "at most the peak", inputs=said)
    assert_equal(got <= intensity * bandwidth * small, True, "at most what the bytes feed", inputs=said)
    touches = math.isclose(got, peak, rel_tol=1e-9) or math.isclose(got, intensity * bandwidth, rel_tol=1e-9)
    hint = "computing and moving overlap: their times are not added, the longer one counts alone"
    assert_equal(touches, True, "one of the two is reached", inputs=said, hint=hint)


@checks("attainable")
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_impossible_machines_are_refused(lab, place, value):
    args = [2.0, 3.0, 4.0]
    args[place] = value
    assert_raises(
        ValueError, lambda: lab.attainable(*args), f"attainable{tuple(args)}", hint="each of the three, not their product"
    )


# flops, bytes, FLOP/s, bytes/s -> what it waits for, and why
BOUNDS = {
    "a vector on a 4090": (2 * N**2, 2 * N**2, 165.2e12, 1.008e12, "memory"),
    "square matrices on a 4090": (2 * N**3, 6 * N**2, 165.2e12, 1.008e12, "compute"),
    "just left of a ridge of 8": (8 * 1024 - 1, 1024, 8e6, 1e6, "memory"),
    "a millionth left of it": (8 * 2**20 - 8, 2**20, 8e6, 1e6, "memory"),
    "exactly on it": (8 * 1024, 1024, 2.0**23, 2.0**20, "compute"),
    "just right of it": (8 * 1024 + 1, 1024, 8e6, 1e6, "compute"),
    "fewer FLOPs than bytes, and a slow chip": (100, 1000, 10, 1000, "compute"),
    "more FLOPs than bytes, and a slow memory": (1000, 100, 1000, 1, "memory"),
    "no FLOPs at all": (0, 1, 1e12, 1e9, "memory"),
    "a step's worth, tiny": (0.5, 0.25, 8.0, 2.0, "memory"),
}


@checks("bound_of")
@pytest.mark.parametrize("name", BOUNDS)
def test_known_bounds(lab, name):
    *args, expected = BOUNDS[name]
    flops, moved, peak, bandwidth = args
    said = f"{name}: {flops:,} FLOPs at {peak:g} a second, {moved:,} bytes at {bandwidth:g} a second"
    got = number(lambda: lab.bound_of(*args), said)
    hint = f"computing takes {flops / peak:.3g} s, moving {moved / bandwidth:.3g} s; the longer one is waited for"
    assert_equal(got, expected, f"bound_of({', '.join(map(str, args))})", inputs=said, hint=hint)


@checks("bound_of")
@given(flops=SIZE, moved=SIZE, peak=SIZE, bandwidth=SIZE)
def test_the_longer_of_two_times(lab, flops, moved, peak, bandwidth):
    computing, moving = flops / peak, moved / bandwidth
    assume(not math.isclose(computing, moving, rel_tol=1e-6))
    said = f"computing {computing:.6g} s, moving {moving:.6g} s (flops {flops:g}, bytes {moved:g}, {peak:g}, {bandwidth:g})"
    assert_equal(
        lab.bound_of(flops, moved, peak, bandwidth), "compute" if computing > moving else "memory", "bound_of", inputs=said
    )


@checks("bound_of")
@pytest.mark.parametrize("place, value", [(0, -1), (1, 0), (1, -1), (2, 0), (2, -1), (3, 0), (3, -1), (3, math.nan)])
def test_nonsense_has_no_bound(lab, place, value):
    args = [1.0, 1.0, 1.0, 1.0]
    args[place] = value
    assert_raises(ValueError, lambda: lab.bound_of(*args), f"bound_of{tuple(args)}", hint="flops may be 0, the others may not")


def counted(seqs, cached, heads, kv_heads, new, shared, kv_bytes, bytes_, dim=3):
    """FLOPs and bytes of one layer, one token, head and element at a time."""
    flops = moved = 0
    read = set()
    for seq in range(seqs):
        for query in range(cached, cached + new):
            moved += 2 * heads * dim * bytes_
            for key in range(query + 1):
                flops += heads * dim * 4
                token = ("shared", key) if key < shared else (seq, key)
                if token not in read:
                    read.add(token)
                    moved += 2 * kv_heads * dim * kv_bytes
    return flops / moved


def attention(lab, *args, **options):
    said = f"attention_intensity({', '.join(map(str, args))}, {', '.join(f'{k}={v}' for k, v in options.items())})"
    return number(lambda: lab.attention_intensity(*args, **options), said), said


LLAMA = {"num_heads": 32, "num_kv_heads": 8}


@checks("attention_intensity")
@pytest.mark.parametrize(
    "args, options, expected",
    [
        ((1, 1000), {}, 3.98408),
        ((256, 1000), {}, 3.98408),
        ((256, 1000), {"shared_tokens": 1000}, 449.572),
        ((1, 0), {"new_tokens": 1024}, 410.0),
        ((64, 1000), {"shared_tokens": 800}, 18.40920),
    ],
    ids=["one user", "256 users", "256 users, all shared", "a prompt", "64 users, most shared"],
)
def test_the_examples(lab, args, options, expected):
    got, said = attention(lab, *args, **LLAMA, **options)
    hint = "FLOPs and keys and values both grow with the batch, so it cancels; shared tokens are read once for all sequences"
    assert_close(got, expected, said, atol=0, rtol=1e-5, hint=hint)


@checks("attention_intensity")
@pytest.mark.parametrize("kv_heads, limit", [(32, 1), (8, 4), (4, 8), (1, 32)])
def test_long_contexts_reach_the_size_of_a_group(lab, kv_heads, limit):
    got, said = attention(lab, 7, 10**9, num_heads=32, num_kv_heads=kv_heads)
    hint = "in 16 bit it tends to queries per key-value head: each number read serves so many heads, 2 FLOPs each, for 2 bytes"
    assert_close(got, limit, said, atol=0, rtol=1e-5, hint=hint)
    got, said = attention(lab, 7, 10**9, num_heads=32, num_kv_heads=kv_heads, bytes_per_kv=1)
    assert_close(
        got, 2 * limit, said, atol=0, rtol=1e-5, hint="a cache of one byte an element has half the bytes, the same FLOPs"
    )


@checks("attention_intensity")
@pytest.mark.parametrize("cached, new", [(0, 1), (0, 2), (0, 7), (1, 1), (5, 4), (16, 3)])
def test_the_causal_mask(lab, cached, new):
    got, said = attention(lab, 1, cached, num_heads=6, num_kv_heads=3, new_tokens=new)
    pairs = sum(cached + i + 1 for i in range(new))
    hint = f"{new} new after {cached} cached have {pairs} pairs: each token sees itself and those before it, not those after"
    assert_close(got, counted(1, cached, 6, 3, new, 0, 2, 2), said, atol=0, rtol=1e-9, hint=hint)


@checks("attention_intensity")
@given(
    seqs=st.integers(1, 4),
    cached=st.integers(0, 8),
    part=st.floats(0, 1),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    new=st.integers(1, 4),
    kv_bytes=st.sampled_from([0.5, 1, 2, 4]),
    bytes_=st.sampled_from([1, 2, 4]),
)
def test_counted_pair_by_pair(lab, seqs, cached, part, kv_heads, group, new, kv_bytes, bytes_):
    shared, heads = int(cached * part), kv_heads * group
    options = {"num_heads": heads, "num_kv_heads": kv_heads, "new_tokens": new, "shared_tokens": shared}
    got, said = attention(lab, seqs, cached, **options, bytes_per_kv=kv_bytes, bytes_per_element=bytes_)
    expected = counted(seqs, cached, heads, kv_heads, new, shared, kv_bytes, bytes_)
    hint = "counted one token, head and element at a time; shared tokens take part in every sequence's pairs, and are read once"
    assert_close(got, expected, said, atol=0, rtol=1e-9, hint=hint)


@checks("attention_intensity")
@pytest.mark.parametrize(
    "wrong",
    [
        {"num_seqs": 0},
        {"num_seqs": -2},
        {"cached_tokens": -1},
        {"new_tokens": 0},
        {"new_tokens": -1},
        {"shared_tokens": -1},
        {"shared_tokens": 11},
        {"num_heads": 0},
        {"num_heads": -4},
        {"num_kv_heads": 0},
        {"num_kv_heads": -2},
        {"num_kv_heads": 3},
        {"num_kv_heads": 8},
        {"bytes_per_kv": 0},
        {"bytes_per_kv": -2},
        {"bytes_per_element": 0},
        {"bytes_per_element": -1},
    ],
    ids=str,
)
def test_impossible_attention_is_refused(lab, wrong):
    good = {"num_seqs": 2, "cached_tokens": 10, "num_heads": 4, "num_kv_heads": 2}
    given_ = good | wrong
    said = f"attention_intensity({', '.join(f'{k}={v}' for k, v in given_.items())})"
    hint = "the docstring lists what is refused: 10 tokens cannot share 11, 4 heads are no multiple of 3"
    assert_raises(ValueError, lambda: lab.attention_intensity(**given_), said, hint=hint)
