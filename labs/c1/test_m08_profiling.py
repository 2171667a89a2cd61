"""Checks of 1.8: a stopwatch run on a clock that only moves when told to, and traces taken apart moment by moment."""

from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.clockwork import Costly, Machine, timed
from labs.kit.compare import assert_close, assert_equal, assert_raises
from labs.kit.traces_by_hand import by_moments, nested, trace
from shared.bound import load_trace
from shared.timing import TooFastError

TRACES = Path(__file__).parent / "m08_traces"


def near(got, expected, what, inputs, hint=None):
    assert_close(got, expected, what, atol=1e-9, rtol=1e-9, inputs=inputs, hint=hint)


@checks("benchmark")
def test_a_steady_call(lab):
    machine = Machine()
    got = timed(lab, machine.does(0.5), warmup=0, repeats=4, clock=machine.clock)
    said = "a call that always takes 0.5 s, 4 repeats"
    assert_equal(type(got).__name__, "Timing", "the type of the result", inputs=said)
    near(got[:3], (0.5, 0.5, 0.5), "median, low and high", said)
    near(got.samples, (0.5,) * 4, "samples", said)
    assert_equal(type(got.samples), tuple, "the type of samples", inputs=said)
    assert_equal(len(machine.calls), 4, "how often fn was called", inputs=said + ", no warm-up")


@checks("benchmark")
@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_the_first_calls_are_cold(lab, warmup):
    machine = Machine()
    got = timed(lab, machine.does(9.0, 8.0, 7.0, 1.0), warmup=warmup, repeats=3, clock=machine.clock)
    expected = [9.0, 8.0, 7.0, 1.0, 1.0, 1.0][warmup : warmup + 3]
    said = f"calls of 9, 8, 7 s and then 1 s each; warmup={warmup}, repeats=3"
    hint = "the warm-up runs once, before the first sample, and none of it is timed"
    near(got.samples, expected, "samples, in the order taken", said, hint)
    assert_equal(len(machine.calls), warmup + 3, "how often fn was called", inputs=said, hint=hint)


@checks("benchmark")
def test_one_interruption_is_not_the_result(lab):
    machine = Machine()
    got = timed(lab, machine.does(1, 2, 90, 1, 3, 2), warmup=0, repeats=6, clock=machine.clock)
    said = "calls of 1, 2, 90, 1, 3 and 2 s"
    near(got.median, 2.0, "median", said, "the mean is 16.5: one interruption owns it")
    near((got.low, got.high), (1.0, 90.0), "low and high", said, "the interruption is not hidden either: it is the largest")
    near(got.samples, (1, 2, 90, 1, 3, 2), "samples", said, "in the order in which they were taken: a trend is a finding")


@checks("benchmark")
@pytest.mark.parametrize("repeats", [1, 5])
def test_work_that_is_only_started_is_waited_for(lab, repeats):
    machine = Machine()
    fn = machine.does(0.25, later=True)
    got = timed(lab, fn, repeats=repeats, number=2, synchronize=machine.synchronize, clock=machine.clock)
    said = f"a call returns at once and has started 0.25 s of work; 3 warm-up calls, repeats={repeats}, number=2"
    hint = "synchronize before the second look at the clock, or the work is not in; and before the first, or the warm-up's is"
    near(got.samples, (0.25,) * repeats, "samples", said, hint)


@checks("benchmark")
def test_each_sample_waits_twice_and_no_more(lab):
    machine = Machine()
    timed(lab, machine.does(1.0), warmup=0, repeats=2, number=3, synchronize=machine.synchronize, clock=machine.clock)
    first = max(machine.log.index("call") - 2, 0)
    expected = ["sync", "clock", "call", "call", "call", "sync", "clock"] * 2
    said = "repeats=2, number=3; the empty function's samples come before this"
    hint = "waiting between the calls of a sample would serialise what a program overlaps"
    assert_equal(machine.log[first:], expected, "the order of events from the first sample on", inputs=said, hint=hint)
    hint = "as many samples of nothing as of fn, each taken in the same way"
    expected = ["sync", "clock", "sync", "clock"] * 2
    assert_equal(machine.log[:first], expected, "the order of events before fn's first sample", inputs=said, hint=hint)


@checks("benchmark")
@pytest.mark.parametrize("warmup, number, repeats", [(0, 1, 7), (1, 1, 3), (2, 3, 4), (4, 2, 1)])
def test_arguments_rotate_through_all_calls(lab, warmup, number, repeats):
    machine = Machine()
    inputs = [(0, "a"), (1, "b"), (2, "c")]
    timed(lab, machine.does(1.0), inputs, warmup=warmup, repeats=repeats, number=number, clock=machine.clock)
    expected = [inputs[i % 3] for i in range(warmup + number * repeats)]
    said = f"three inputs, warmup={warmup}, repeats={repeats}, number={number}"
    hint = "one rotation through warm-up and samples alike: a sample that starts over finds the first input in the cache"
    assert_equal(machine.calls, expected, "arguments, call by call", inputs=said, hint=hint)


@checks("benchmark")
def test_many_calls_in_a_sample(lab):
    machine = Machine(read=0.1)
    got = timed(lab, machine.does(1, 2, 3, 4, 5, 6), warmup=0, repeats=2, number=3, clock=machine.clock, times_floor=1)
    said = "calls of 1 to 6 s, three in a sample; reading the clock takes 0.1 s"
    near(got.samples, (6.1 / 3, 15.1 / 3), "samples", said, "a sample is the time of `number` calls, divided by number")
    near(got.floor, 0.1 / 3, "floor", said, "as the samples: three calls of nothing, divided by three")


@checks("benchmark")
def test_the_floor_is_what_the_measuring_takes(lab):
    machine = Machine(read=0.001)
    seen = []

    def slow_wait():
        seen.append("call" in machine.log)
        machine.now += 0.002

    got = timed(lab, machine.does(1.0), synchronize=slow_wait, clock=machine.clock, repeats=5)
    said = "reading the clock takes 0.001 s, synchronize 0.002 s"
    hint = "an empty function, timed exactly as fn is: synchronize, clock, call, synchronize, clock"
    near(got.floor, 0.003, "floor", said, hint)
    near(got.median, 1.003, "median", said, "the floor is reported beside the median, not taken off it")
    assert_equal(seen.count(False) >= 10, True, "5 samples of nothing come before fn runs", inputs=said)


@checks("benchmark")
@pytest.mark.parametrize("takes, refused", [(0.95, True), (0.991, False), (5.0, False), (0.0, True)])
def test_what_the_clock_cannot_see_is_refused(lab, takes, refused):
    machine = Machine(read=0.1)
    said = f"a call of {takes} s, a floor of 0.1 s, so {takes + 0.1:.3g} s measured; times_floor=10.9"

    def run():
        return lab.benchmark(machine.does(takes), clock=machine.clock, times_floor=10.9)

    if refused:
        hint = "a number that is mostly stopwatch is no number"
        assert_raises(TooFastError, run, f"benchmark of {said}", hint=hint)
    else:
        near(
            timed(lab, machine.does(takes), clock=machine.clock, times_floor=10.9).median,
            takes + 0.1,
            "median",
            said,
            "above times_floor * floor it is reported",
        )


@checks("benchmark")
def test_exactly_at_the_border_is_refused(lab):
    machine = Machine(read=0.25)
    said = "a call of 0.75 s, measured as 1.0 s, with a floor of 0.25 s and times_floor=4"
    run = lambda: lab.benchmark(machine.does(0.75), clock=machine.clock, times_floor=4)  # noqa: E731
    assert_raises(TooFastError, run, f"benchmark of {said}", hint="the median has to be above the border")


@checks("benchmark")
def test_the_median_decides_and_not_one_quick_call(lab):
    machine = Machine()
    got = timed(lab, machine.does(0.5, 2.0), clock=machine.clock, resolution=0.1, warmup=0, repeats=3)
    near(
        got.median,
        2.0,
        "median",
        "calls of 0.5, 2 and 2 s, a floor of 0.1 s",
        "2 s are above ten floors, and they are the result",
    )


@checks("benchmark")
def test_a_clock_that_moves_in_steps(lab):
    """It reads 0, 4, 8 s: a call of 5 s is seen as 4 or 8, and nothing as 0."""
    said = "a clock in steps of 4 s, reading it takes no time; calls of 5 s"
    one = lambda: lab.benchmark(stepping.does(5.0), clock=stepping.clock, resolution=4.0)  # noqa: E731
    stepping = Machine(step=4.0)
    hint = "an empty function takes 0 s on such a clock: the floor is at least its resolution"
    assert_raises(TooFastError, one, f"benchmark of {said}, resolution=4", hint=hint)
    stepping = Machine(step=4.0)
    got = timed(lab, stepping.does(5.0), clock=stepping.clock, resolution=4.0, number=1000, repeats=3)
    near(got.floor, 0.004, "floor", said + ", number=1000", "a sample is off by a step; a call by a thousandth of that")
    assert_close(got.median, 5.0, "median", atol=0.01, rtol=0, inputs=said + ", number=1000")


@checks("benchmark")
def test_a_few_disturbed_empty_samples(lab):
    machine = Machine()
    waits = iter([0, 50, 0, 0, 0, 0.02, 0, 0.02, 0, 0.03] + [0] * 100)

    def wait():
        machine.now += next(waits)

    got = timed(lab, machine.does(1.0), synchronize=wait, clock=machine.clock, repeats=5, resolution=0.01)
    said = "five empty samples of 50, 0, 0.02, 0.02 and 0.03 s; resolution=0.01"
    near(got.floor, 0.02, "floor", said, "the floor is a median too: not the worst, the mean, the luckiest or the last")


@checks("benchmark")
def test_the_floor_hands_over_the_same_arguments(lab):
    machine = Machine(read=0.01)
    inputs = [Costly((machine, 0.1)), Costly((machine, 0.3))]
    got = timed(lab, machine.does(9.0), inputs, clock=machine.clock, number=4, repeats=3)
    said = "arguments that take 0.1 s and 0.3 s to unpack, by turns; number=4; reading the clock takes 0.01 s"
    hint = "the empty function is called as often as fn, with the same arguments in turn: f(*arguments)"
    near(got.floor, 0.81 / 4, "floor", said, hint)


@checks("benchmark")
@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": []},
        {"warmup": -1},
        {"repeats": 0},
        {"number": 0},
        {"times_floor": 0},
        {"times_floor": -2},
        {"resolution": -1.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_nonsense_is_refused_before_anything_runs(lab, wrong):
    machine = Machine()
    name = f"benchmark(fn, {', '.join(f'{key}={value!r}' for key, value in wrong.items())})"
    assert_raises(ValueError, lambda: lab.benchmark(machine.does(1.0), **{"clock": machine.clock} | wrong), name)
    assert_equal(machine.calls, [], "calls of fn", inputs=name, hint="look at the arguments first")


def spent(got):
    return (got.overhead, got.memory, got.compute)


@checks("classify_bound")
@pytest.mark.parametrize(
    "flops, moved, expected, why",
    [
        (0, 10, "memory", "it only moves bytes"),
        (100, 1, "compute", "100 FLOP/byte, the ridge is at 10"),
        (99, 10, "memory", "9.9 FLOP/byte, the ridge is at 10"),
        (100, 10, "compute", "exactly at the ridge: the arithmetic takes at least as long"),
        (1, 0.1, "overhead", "its roof is a hundredth of the time it took"),
        (0, 0, "overhead", "it has no work of its own"),
    ],
)
def test_one_call(lab, flops, moved, expected, why):
    said = f"peak 100 FLOP/s, bandwidth 10 bytes/s; a step of 1 s, one call of 1 s with {flops} FLOP and {moved} bytes"
    got = lab.classify_bound(trace(1.0, ("call", 0.0, 1.0, flops, moved)))
    assert_equal(got.bound, expected, "bound", inputs=said, hint=why)
    near(spent(got), [float(expected == kind) for kind in ("overhead", "memory", "compute")], "the three times", said)


@checks("classify_bound")
@pytest.mark.parametrize("near_, expected", [(0.1, "memory"), (0.5, "memory"), (0.51, "overhead"), (1, "overhead")])
def test_how_near_the_roof_must_be(lab, near_, expected):
    said = f"a call of 2 s that moves bytes for 1 s, near={near_}"
    try:
        got = lab.classify_bound(trace(2.0, ("mul", 0.0, 2.0, 0, 10)), near_).bound
    except ValueError as e:
        got = f"ValueError: {e}"
    assert_equal(got, expected, "bound", inputs=said, hint="overhead where the roof is below near * its own time")


@checks("classify_bound")
def test_the_whole_time_goes_one_way(lab):
    got = lab.classify_bound(trace(4.0, ("mm", 0.0, 4.0, 0, 10)))
    said = "a call of 4 s that moves bytes for 1 s"
    near(spent(got), (0, 4, 0), "overhead, memory, compute", said, "what a call takes above its roof is not overhead: it waits")


@checks("classify_bound")
def test_time_that_no_call_covers_is_overhead(lab):
    got = lab.classify_bound(trace(10.0, ("mm", 1.0, 2.0, 0, 20), ("mm", 6.0, 1.0, 0, 10)))
    said = "a step of 10 s; calls from 1 to 3 s and from 6 to 7 s, both at the memory's roof"
    near(spent(got), (7, 3, 0), "overhead, memory, compute", said, "before, between and after the calls, somebody was waiting")
    assert_equal(got.bound, "overhead", "bound", inputs=said)


@checks("classify_bound")
def test_a_moment_is_counted_once(lab):
    events = [("linear", 0.0, 10.0, 0, 0), ("matmul", 1.0, 8.0, 0, 0), ("mm", 2.0, 6.0, 600, 1)]
    said = "linear from 0 to 10 s calls matmul from 1 to 9 s, which calls mm from 2 to 8 s; only mm has work"
    hint = "a caller's own time is its duration less that of the calls directly within it"
    near(spent(lab.classify_bound(trace(10.0, *events))), (4, 0, 6), "overhead, memory, compute", said, hint)


@checks("classify_bound")
def test_a_caller_with_work_of_its_own(lab):
    events = [("mm", 0.0, 10.0, 0, 20), ("check", 1.0, 3.0, 0, 0), ("check", 5.0, 3.0, 0, 0)]
    said = "mm takes 10 s, of which 6 in two calls without work; it moves bytes for 2 s; near=0.5"
    hint = "compare the roof with its own time, 4 s, not with its duration"
    near(spent(lab.classify_bound(trace(10.0, *events), 0.5)), (6, 4, 0), "overhead, memory, compute", said, hint)


@checks("classify_bound")
def test_edges_that_touch(lab):
    events = [
        ("a", 0.0, 2.0, 0, 20),
        ("b", 2.0, 2.0, 200, 0),
        ("c", 2.0, 2.0, 0, 20),
        ("d", 4.0, 0.0, 0, 5),
        ("e", 4.0, 1.0, 0, 10),
    ]
    said = "a 0-2 s; b 2-4 s with c inside, exactly as long; d at 4 s, of no duration; e 4-5 s. All but b move bytes"
    near(spent(lab.classify_bound(trace(5.0, *events))), (0, 5, 0), "overhead, memory, compute", said, "b has no time of its own")


@checks("classify_bound")
def test_the_largest_of_three(lab):
    many = [("mm", float(i), 1.0, 100, 1) for i in range(4)] + [("mul", 4.0 + i, 1.0, 0, 10) for i in range(3)]
    got = lab.classify_bound(trace(10.0, *many))
    said = "compute 4 s, memory 3 s, nothing 3 s"
    near(spent(got), (3, 3, 4), "overhead, memory, compute", said)
    assert_equal(got.bound, "compute", "bound", inputs=said, hint="the largest of the three; it need not be a half")


@checks("classify_bound")
def test_ties(lab):
    events = [("mul", 0.0, 2.0, 0, 20), ("mm", 2.0, 2.0, 200, 0)]
    hint = "the order is overhead, memory, compute"
    assert_equal(lab.classify_bound(trace(4.0, *events)).bound, "memory", "bound", inputs="memory 2 s, compute 2 s", hint=hint)
    assert_equal(lab.classify_bound(trace(6.0, *events)).bound, "overhead", "bound", inputs="2 s of each", hint=hint)


@checks("classify_bound")
def test_nothing_ran(lab):
    got = lab.classify_bound(trace(3.0))
    assert_equal(got.bound, "overhead", "bound", inputs="a step of 3 s without a single call")
    near(spent(got), (3, 0, 0), "overhead, memory, compute", "a step of 3 s without a single call")


@checks("classify_bound")
def test_the_same_call_on_another_machine(lab):
    """A matrix of [576, 1536] float32, 16 rows: at the ridge of one machine, below that of another."""
    flops, moved = 2 * 16 * 576 * 1536, 4 * (576 * 1536 + 16 * (576 + 1536))
    for name, peak, bandwidth, expected in (("a CPU core", 60e9, 12e9, "compute"), ("an RTX 4090", 165.2e12, 1008e9, "memory")):
        seconds = max(flops / peak, moved / bandwidth)
        got = lab.classify_bound(trace(seconds, ("mm", 0.0, seconds, flops, moved), peak=peak, bandwidth=bandwidth))
        said = f"16 rows through a matrix of 576 x 1536 on {name}, {peak / bandwidth:.3g} FLOP/byte at its ridge"
        assert_equal(got.bound, expected, "bound", inputs=said, hint="the ceilings are the trace's own")


@checks("classify_bound")
@given(events=nested(), near_=st.sampled_from([0.1, 0.3, 1.0]))
def test_second_by_second(lab, events, near_):
    whole = trace(24.0, *events)
    expected = by_moments(whole, near_)
    said = f"a step of 24 s, peak 100 FLOP/s, bandwidth 10 bytes/s, near={near_}; {[e[1:] for e in events]}"
    got = lab.classify_bound(whole, near_)
    near(spent(got), expected, "overhead, memory, compute", said, "each second belongs to the innermost event that covers it")
    near(sum(spent(got)), 24.0, "their sum", said)


RECORDED = {
    "decode": ("memory", "SmolLM2-135M, one row: each weight is read for two FLOPs"),
    "prefill": ("compute", "SmolLM2-135M, 64 rows: each weight is read once for 128 FLOPs"),
    "tiny_decode": ("overhead", "a model 16 wide: there is nothing to read or compute, and hundreds of calls"),
}


@checks("classify_bound")
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traces(lab, name):
    expected, why = RECORDED[name]
    recorded = load_trace(TRACES / f"{name}.json")
    got = lab.classify_bound(recorded)
    assert_equal(got.bound, expected, "bound", inputs=recorded.about, hint=why)
    near(
        sum(spent(got)), recorded.seconds, "the sum of the three", recorded.about, "nested calls counted twice, or gaps left out"
    )
    matrices = sum(e.duration for e in recorded.events if e.name == "mm")
    if expected != "overhead":
        largest = max(spent(got))
        said = f"{recorded.about}; its mm calls take {1e3 * matrices:.1f} ms"
        assert_close(largest, matrices, f"{expected}, against the matrices' time", atol=0, rtol=0.12, inputs=said)


@checks("classify_bound")
@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"peak": 0.0},
        {"bandwidth": 0.0},
        {"bandwidth": -10.0},
        {"peak": -100.0},
        {"near": 0.0},
        {"near": 1.5},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_nonsense(lab, wrong):
    options = {"seconds": 1.0, "peak": 100.0, "bandwidth": 10.0, "near": 0.1} | wrong
    share, seconds = options.pop("near"), options.pop("seconds")
    assert_raises(ValueError, lambda: lab.classify_bound(trace(seconds, **options), share), f"classify_bound with {wrong}")


@checks("benchmark")
def test_any_samples(lab):
    for times in ((3.0,), (1.0, 2.0), (5.0, 1.0, 4.0, 2.0), (7.0, 7.0, 1.0), (*range(2, 42), 90.0, 1.0)):
        machine = Machine()
        got = timed(lab, machine.does(*times), warmup=0, repeats=len(times), clock=machine.clock)
        near(got.median, median(times), "median", f"calls of {times} s", "of an even number: halfway between the middle two")
        said = "the smallest and the largest of all: an interruption is not cut off"
        near((got.low, got.high), (min(times), max(times)), "low and high", f"calls of {times} s", said)
