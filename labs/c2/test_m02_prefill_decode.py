"""Checks of 2.2: steps of known models counted, what must hold for any batch, and ceilings hidden in timings."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal, assert_raises

# Every dimension is another number, so that none can stand for another: q is 15, kv is 5, hidden_size 7.
ODD = {"num_layers": 2, "hidden_size": 7, "num_heads": 3, "num_kv_heads": 1, "head_dim": 5, "intermediate_size": 11}
ODD |= {"vocab_size": 13}
NAMES = ["num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "intermediate_size", "vocab_size"]
LLAMA = dict(zip(NAMES, [32, 4096, 32, 8, 128, 14336, 128256], strict=True))
SMOL = dict(zip(NAMES, [30, 576, 9, 3, 64, 1536, 49152], strict=True))

# Counted by hand for ODD: a layer has 7*15 + 2*7*5 + 15*7 + 3*7*11 = 511 weights, the head 91, a token's KV 2*2*5 = 20 numbers.
BY_HAND = {
    "one decode, nothing cached": ([(1, 0, 1)], 2 * 1022 + 2 * 91 + 4 * 15 * 2, 2 * (1022 + 91 + 7) + 2 * 20),
    "one decode after 6 tokens": ([(1, 6, 1)], 2 * 1022 + 2 * 91 + 4 * 15 * 2 * 7, 2 * (1022 + 91 + 7) + 2 * 20 * 7),
    "a prompt of 4": ([(4, 0, 1)], 8 * 1022 + 2 * 91 + 4 * 15 * 2 * 10, 2 * (1022 + 91 + 28) + 2 * 20 * 4),
    "4 tokens after 6": ([(4, 6, 1)], 8 * 1022 + 2 * 91 + 4 * 15 * 2 * 34, 2 * (1022 + 91 + 28) + 2 * 20 * 10),
    "a prompt of 4, embedded": ([(4, 0, 0)], 8 * 1022 + 4 * 15 * 2 * 10, 2 * (1022 + 28) + 2 * 20 * 4),
    "a prompt of 4, scored": ([(4, 0, 4)], 8 * 1022 + 8 * 91 + 4 * 15 * 2 * 10, 2 * (1022 + 91 + 28) + 2 * 20 * 4),
    "3 decodes": ([(1, 6, 1)] * 3, 6 * 1022 + 6 * 91 + 4 * 15 * 2 * 21, 2 * (1022 + 91 + 21) + 2 * 20 * 21),
    "a decode beside half a prompt": (
        [(1, 6, 1), (4, 0, 0)], 10 * 1022 + 2 * 91 + 4 * 15 * 2 * 17, 2 * (1022 + 91 + 35) + 2 * 20 * 11,
    ),
}  # fmt: skip

KNOWN = {
    "Llama-3.1-8B, a decode after 1,000 tokens": (LLAMA, [(1, 1000, 1)], 15_534_129_152, 15_140_528_128),
    "SmolLM2-135M, a prompt of 1,000": (SMOL, [(1000, 0, 1)], 246_987_823_104, 293_151_744),
}


@checks("phase_cost")
@pytest.mark.parametrize("name", BY_HAND)
def test_a_small_model_counted_by_hand(lab, name):
    batch, flops, moved = BY_HAND[name]
    said = f"{name}: batch={batch}, {', '.join(f'{k}={v}' for k, v in ODD.items())}"
    got = lab.phase_cost(batch, **ODD)
    assert_equal(
        got[0], flops, "FLOPs", inputs=said,
        hint="rows are new tokens; the head's rows are those that get logits; token i of the new ones sees cached + i + 1 tokens",
    )  # fmt: skip
    assert_equal(
        got[1], moved, "bytes", inputs=said,
        hint="weights once for the whole batch, the head only if needed; keys and values of every token, cached and new",
    )  # fmt: skip


@checks("phase_cost")
@pytest.mark.parametrize("name", KNOWN)
def test_known_models(lab, name):
    sizes, batch, flops, moved = KNOWN[name]
    got = lab.phase_cost(batch, **sizes)
    assert_equal(got, (flops, moved), "(FLOPs, bytes)", inputs=f"{name}, 16 bit: batch={batch}")


@checks("phase_cost")
def test_widths_belong_to_weights_and_to_cache(lab):
    base = lab.phase_cost([(4, 6, 1)], **ODD)
    wide = lab.phase_cost([(4, 6, 1)], **ODD, bytes_per_weight=4)
    small = lab.phase_cost([(4, 6, 1)], **ODD, bytes_per_kv=0.5)
    said = "4 new tokens after 6, a layer of 511 weights, two layers, a head of 91, 20 numbers of KV a token"
    assert_equal(wide[0], base[0], "FLOPs with bytes_per_weight=4", inputs=said, hint="widths change bytes only")
    assert_equal(wide[1], base[1] + 2 * 1141, "bytes with bytes_per_weight=4", inputs=said)
    assert_equal(small[1], base[1] - 1.5 * 200, "bytes with bytes_per_kv=0.5", inputs=said, hint="a width may be half a byte")
    four_bits = lab.phase_cost([(4, 6, 1)], **ODD, bytes_per_weight=0.5)
    hint = "a width may be half a byte, and so may the sum: nothing is rounded"
    assert_equal(four_bits[1], base[1] - 1.5 * 1141, "bytes with bytes_per_weight=0.5", inputs=said, hint=hint)


@checks("phase_cost")
def test_a_batch_is_only_read(lab):
    batch = [(4, 6, 1), (1, 9, 1), (2, 0, 0)]
    expected = lab.phase_cost(tuple(batch), **ODD)
    assert_equal(lab.phase_cost(batch, **ODD), expected, "(FLOPs, bytes)", inputs=f"{batch}, as a list and as a tuple")
    hint = "sort or pop a copy, not the caller's list"
    assert_equal(batch, [(4, 6, 1), (1, 9, 1), (2, 0, 0)], "the batch after the call", hint=hint)


SEQUENCE = st.tuples(st.integers(1, 40), st.integers(0, 60), st.integers(0, 1))


@checks("phase_cost")
@given(batch=st.lists(SEQUENCE, min_size=1, max_size=5))
def test_a_batch_adds_flops_and_shares_weights(lab, batch):
    flops, moved = lab.phase_cost(batch, **ODD)
    alone = [lab.phase_cost([one], **ODD) for one in batch]
    said = f"batch={batch}, beside each of its sequences alone"
    assert_equal(flops, sum(a[0] for a in alone), "FLOPs", inputs=said, hint="sequences do not see one another")
    heads = sum(1 for *_, logits in batch if logits)
    shared = 2 * (1022 * (len(batch) - 1) + 91 * max(0, heads - 1))
    assert_equal(moved, sum(a[1] for a in alone) - shared, "bytes", inputs=said, hint="the whole batch reads a weight once")


@checks("phase_cost")
@given(new=st.integers(2, 60), cached=st.integers(0, 60), cut=st.integers(1, 59))
def test_a_prompt_in_two_parts_computes_the_same(lab, new, cached, cut):
    cut = min(cut, new - 1)
    whole = lab.phase_cost([(new, cached, 1)], **ODD)
    parts = [lab.phase_cost([(cut, cached, 0)], **ODD), lab.phase_cost([(new - cut, cached + cut, 1)], **ODD)]
    said = f"{new} new tokens after {cached}, at once or {cut} and then the rest"
    hint = "the second part sees the first as cached tokens: as many pairs as before"
    assert_equal(parts[0][0] + parts[1][0], whole[0], "FLOPs of both parts", inputs=said, hint=hint)


@checks("phase_cost")
@pytest.mark.parametrize("batch", [[], [(0, 5, 0)], [(3, -1, 1)], [(3, 0, -1)], [(3, 0, 4)], [(1, 4, 1), (0, 4, 0)]])
def test_a_batch_that_cannot_be_is_refused(lab, batch):
    assert_raises(ValueError, lambda: lab.phase_cost(batch, **ODD), f"phase_cost({batch}, ...)", hint="look at every sequence")


@checks("phase_cost")
@pytest.mark.parametrize("name", [*NAMES, "bytes_per_weight", "bytes_per_kv"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_shape_that_cannot_be_is_refused(lab, name, value):
    sizes = {**ODD, name: value}
    assert_raises(ValueError, lambda: lab.phase_cost([(1, 0, 1)], **sizes), f"phase_cost with {name}={value}")


def timed(peak, bandwidth, intensities, noise=(), moved=1e9):
    "(flops, num_bytes, seconds): moved bytes of each intensity, given in multiples of the ridge, and times off by a factor."
    factors = [*noise, *[1.0] * len(intensities)]
    work = [(i * peak / bandwidth * moved, moved) for i in intensities]
    return [(f, b, max(f / peak, b / bandwidth) * k) for (f, b), k in zip(work, factors, strict=False)]


def assert_ceilings(got, peak, bandwidth, said, hint, rtol=1e-6):
    assert_close(got[0], peak, "the peak (FLOP/s)", atol=0, rtol=rtol, inputs=said, hint=hint)
    assert_close(got[1], bandwidth, "the bandwidth (bytes/s)", atol=0, rtol=rtol, inputs=said, hint=hint)


@checks("fit_phase_cost")
@pytest.mark.parametrize("intensities", [(0.1, 0.5, 2, 9), (0.2, 3, 5, 9), (0.1, 0.2, 0.4, 7), (0.3, 4), (0.1, 0.1, 0.1, 3, 3)])
@pytest.mark.parametrize("order", [1, -1])
def test_exact_timings_give_the_ceilings_back(lab, intensities, order):
    said = f"a machine of 80e9 FLOP/s and 10e9 bytes/s, work at {intensities[::order]} times its ridge"
    got = lab.fit_phase_cost(timed(80e9, 10e9, intensities)[::order])
    assert_ceilings(got, 80e9, 10e9, said, "sort by flops / num_bytes, and try every border: not always half and half")


@checks("fit_phase_cost")
@given(
    peak=st.floats(1e9, 1e15), ridge=st.floats(1, 400),
    low=st.lists(st.floats(0.01, 0.8), min_size=1, max_size=3), high=st.lists(st.floats(1.25, 50), min_size=1, max_size=3),
)  # fmt: skip
def test_any_machine_and_any_border(lab, peak, ridge, low, high):
    got = lab.fit_phase_cost(timed(peak, peak / ridge, [*high, *low]))
    said = f"peak {peak:.3g}, bandwidth {peak / ridge:.3g}, work at {high} and {low} times the ridge"
    assert_ceilings(got, peak, peak / ridge, said, "work below the ridge tells the bandwidth, work above it the peak", 1e-5)


@checks("fit_phase_cost")
@pytest.mark.parametrize("k", [1.02, 1.1, 1.25])
def test_noise_cancels_in_logarithms(lab, k):
    timings = timed(80e9, 10e9, (0.05, 0.1, 10, 30), noise=(k, 1 / k, 1 / k, k))
    said = f"80e9 FLOP/s and 10e9 bytes/s; two timings {k} times too long, two {k} times too short"
    assert_ceilings(
        lab.fit_phase_cost(timings), 80e9, 10e9, said,
        "the geometric mean of the speeds on each side: not the fastest, not the average, not a sum over all",
    )  # fmt: skip


@checks("fit_phase_cost")
def test_three_timings_that_do_not_cancel(lab):
    timings = timed(80e9, 10e9, (0.05, 0.06, 0.1, 10, 30, 40), noise=(1.3, 1, 1, 1, 1.2, 1))
    said = "a timing 1.3 times too long among three that are bound by memory, and one 1.2 times too long among three others"
    assert_ceilings(lab.fit_phase_cost(timings), 80e9 / 1.2 ** (1 / 3), 10e9 / 1.3 ** (1 / 3), said, "no median: all count")


@checks("fit_phase_cost")
def test_a_millisecond_counts_as_much_as_a_minute(lab):
    short = timed(80e9, 10e9, (0.05, 0.1, 0.2), noise=(1, 1, 1.1), moved=1e6)
    long = timed(80e9, 10e9, (3, 30), noise=(1.1, 1), moved=1e12)
    got = lab.fit_phase_cost([*long, *short])
    said = "three short timings below the ridge, two very long ones above it"
    mean = math.sqrt(1.1)
    assert_ceilings(got, 80e9 / mean, 10e9 / 1.1 ** (1 / 3), said, "errors are of log(seconds), so that size does not matter")


@checks("fit_phase_cost")
def test_intensity_decides_and_not_size(lab):
    long, short = timed(80e9, 10e9, (0.05, 0.5), moved=1e12), timed(80e9, 10e9, (3, 30), moved=1e6)
    got = lab.fit_phase_cost([*short, *long])
    said = "two very long timings far below the ridge, two short ones far above it"
    assert_ceilings(got, 80e9, 10e9, said, "sort by flops / num_bytes, not by flops and not by seconds")


@checks("fit_phase_cost")
def test_equal_intensities_stay_together(lab):
    timings = [(1e9, 1e9, 0.1), (64e9, 1e9, 1.0), (64e9, 1e9, 0.64), (64e9, 1e9, 0.8)]
    speeds = [64e9 / s for s in (1.0, 0.64, 0.8)]
    got = lab.fit_phase_cost(timings)
    assert_ceilings(got, math.prod(speeds) ** (1 / 3), 10e9, f"{timings}", "one kind of work, timed three times, is on one side")


def least_error(timings):
    """The definition, border by border: (peak, bandwidth) of the best, and how many times larger the second error is."""
    tried = []
    for border in sorted({f / b for f, b, _ in timings})[1:]:
        above = [math.log(f / s) for f, b, s in timings if f / b >= border]
        below = [math.log(b / s) for f, b, s in timings if f / b < border]
        peak, bandwidth = (math.exp(sum(logs) / len(logs)) for logs in (above, below))
        error = sum((math.log(max(f / peak, b / bandwidth)) - math.log(s)) ** 2 for f, b, s in timings)
        tried.append((error, peak, bandwidth))
    (first, *ceilings), (second, *_) = sorted(tried)[:2]
    return tuple(ceilings), second / first


@checks("fit_phase_cost")
@pytest.mark.parametrize("spread", [1.3, 2.0, 3.0])
def test_timings_that_fit_no_border_well(lab, spread):
    """Work all around the ridge, timed carelessly: which border is best depends on what is called an error."""
    rng, seen = random.Random(0), 0
    while seen < 60:
        intensities = [10 ** rng.uniform(-1, 1) for _ in range(rng.randint(3, 6))]
        timings = timed(80e9, 10e9, intensities, noise=[spread ** rng.uniform(-1, 1) for _ in intensities])
        expected, margin = least_error(timings)
        if margin < 1.02:  # too close to call
            continue
        seen += 1
        said = "(FLOPs, bytes, seconds): " + ", ".join(f"({f:.3g}, {b:.3g}, {s:.3g})" for f, b, s in timings)
        hint = (
            "the error is over all timings, each predicted by max(flops / peak, num_bytes / bandwidth), in log(seconds), squared"
        )
        assert_ceilings(lab.fit_phase_cost(timings), *expected, said, hint)


@checks("fit_phase_cost")
def test_timings_are_only_read(lab):
    timings = timed(80e9, 10e9, (9, 0.5, 2, 0.1))
    before = list(timings)
    assert_ceilings(lab.fit_phase_cost(tuple(timings)), 80e9, 10e9, "a tuple of timings", "any sequence will do")
    lab.fit_phase_cost(timings)
    assert_equal(timings, before, "the timings after the call", hint="sorted(timings) makes a copy, timings.sort() does not")


@checks("fit_phase_cost")
def test_work_on_one_side_gives_a_lower_bound(lab):
    peak, bandwidth = lab.fit_phase_cost(timed(80e9, 10e9, (0.1, 0.2, 0.5)))
    assert_close(bandwidth, 10e9, "the bandwidth", atol=0, rtol=1e-6, inputs="three timings, all bound by memory")
    assert_close(peak, 40e9, "the peak", atol=0, rtol=1e-6, inputs="three timings, all bound by memory: at most half the ridge")


@checks("fit_phase_cost")
@pytest.mark.parametrize("timings", [[], [(1e9, 1e9, 1)], [(1e9, 2e9, 1), (2e9, 4e9, 2), (4e9, 8e9, 4)]])
def test_one_intensity_is_not_enough(lab, timings):
    assert_raises(ValueError, lambda: lab.fit_phase_cost(timings), f"fit_phase_cost({timings})", hint="nothing to tell apart")


@checks("fit_phase_cost")
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("value", [0, -1.0])
def test_a_number_that_cannot_be_is_refused(lab, place, value):
    timings = [list(t) for t in timed(80e9, 10e9, (0.1, 0.2, 3, 9))]
    timings[2][place] = value
    assert_raises(ValueError, lambda: lab.fit_phase_cost(timings), f"fit_phase_cost with a timing {timings[2]}")
