"""Checks of 1.1: known answers, and a warp compared with 32 lanes that run alone and are put together afterwards."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal, assert_raises
from labs.kit.lanes_by_hand import put_together

# ------------------------------------------------------------------------------------------------------------ bytes_in_flight


@checks("bytes_in_flight")
@pytest.mark.parametrize(
    "bandwidth, latency, expected",
    [
        (1008e9, 500e-9, 504_000),
        (3.35e12, 700e-9, 2_345_000),
        (20e9, 0.1e-6, 2000),
        (100.0, 2.0, 200),  # a warehouse: 100 parcels a second, two seconds each
        (7e9, 1e-10, 0.7),
        (3.0, 0.5, 1.5),
    ],
)
def test_rate_times_time(lab, bandwidth, latency, expected):
    said = f"{bandwidth:g} bytes/s, {latency:g} s"
    hint = "seconds and bytes/s as they come, the product not rounded"
    assert_close(lab.bytes_in_flight(bandwidth, latency), expected, "bytes", atol=0, rtol=1e-12, inputs=said, hint=hint)


@checks("bytes_in_flight")
@given(st.floats(1e-3, 1e15), st.floats(1e-12, 1e3))
def test_any_rate_and_time(lab, bandwidth, latency):
    got = lab.bytes_in_flight(bandwidth, latency)
    said = f"{bandwidth!r} bytes/s, {latency!r} s"
    assert_close(got / latency, bandwidth, "bytes / latency", atol=0, rtol=1e-9, inputs=said, hint="it must give the rate back")


@checks("bytes_in_flight")
@pytest.mark.parametrize("arguments", [(0, 1e-7), (1e9, 0), (-1e9, 1e-7), (1e9, -1e-7), (-1e9, -1e-7), (math.nan, 1.0)], ids=str)
def test_bytes_in_flight_refuses_nonsense(lab, arguments):
    assert_raises(ValueError, lambda: lab.bytes_in_flight(*arguments), f"bytes_in_flight{arguments}")


# --------------------------------------------------------------------------------------------------------------- warps_needed


@checks("warps_needed")
@pytest.mark.parametrize(
    "arguments, options, expected",
    [
        ((1008e9, 500e-9, 128), {}, 31),
        ((1008e9, 500e-9, 128), {"bytes_per_lane": 16}, 8),
        ((1008e9, 500e-9, 128), {"loads_per_lane": 4}, 8),
        ((1008e9, 500e-9, 128), {"bytes_per_lane": 2}, 62),  # more than the 48 it has places for
        ((3.35e12, 600e-9, 132), {"bytes_per_lane": 16, "loads_per_lane": 2}, 15),
        ((1008e9, 500e-9, 1), {}, 3938),
        ((128.0, 1.0, 1), {}, 1),  # exactly one warp's load a second
        ((129.0, 1.0, 1), {}, 2),
        ((1e6, 1e-7, 128), {}, 1),
        ((128.0 * 10, 1.0, 4), {}, 3),  # ten warps over four multiprocessors
        ((643.0, 1.0, 5), {}, 2),  # 128.6 bytes on each
        ((1008e9, 500e-9, 128), {"bytes_per_lane": 0.5}, 247),  # weights of four bits
        ((128_000.032, 1.0, 1), {}, 1001),  # a quarter of a thousandth of a warp is no float rounding
    ],
    ids=str,
)
def test_known_numbers_of_warps(lab, arguments, options, expected):
    got = lab.warps_needed(*arguments, **options)
    hint = "bytes under way, shared out among the multiprocessors, in loads of 32 lanes; rounded up, never down, never cut off"
    assert_equal(got, expected, "warps", inputs=f"warps_needed(*{arguments}, **{options})", hint=hint)


@checks("warps_needed")
@given(st.integers(1, 4000), st.integers(1, 900), st.sampled_from([1, 2, 5, 82, 125, 128]), st.sampled_from([2, 4, 16]),
       st.integers(1, 4))  # fmt: skip
def test_rounding_in_whole_numbers(lab, gigabytes, nanoseconds, multiprocessors, size, loads):
    """The same in fractions, which are exact: GB/s times ns is bytes."""
    exact = Fraction(gigabytes * nanoseconds, multiprocessors * 32 * size * loads)
    got = lab.warps_needed(gigabytes * 1e9, nanoseconds * 1e-9, multiprocessors, bytes_per_lane=size, loads_per_lane=loads)
    said = f"{gigabytes} GB/s, {nanoseconds} ns, {multiprocessors} multiprocessors, {size} bytes a lane, {loads} loads"
    hint = f"exactly {float(exact):.6g}, rounded up"
    assert_equal(got, math.ceil(exact), "warps", inputs=said, hint=hint)


@checks("warps_needed")
def test_float_rounding_is_not_a_warp(lab):
    got = [lab.warps_needed(gb * 1e9, 400 * 1e-9, 5) for gb in (4, 8, 16, 24)]
    said = "4, 8, 16 and 24 GB/s, 400 * 1e-9 s, 5 multiprocessors: 2.5, 5, 10 and 15 warps"
    hint = "8e9 * (400 * 1e-9) is 3200.0000000000005; a billionth more than a whole number is that number"
    assert_equal(got, [3, 5, 10, 15], "warps", inputs=said, hint=hint)
    assert_equal(isinstance(got[0], int), True, "a whole number of Python's type int", inputs=said)


@checks("warps_needed")
@pytest.mark.parametrize(
    "arguments, options",
    [
        ((0, 1e-7, 1), {}),
        ((1e9, -1e-7, 1), {}),
        ((1e9, 1e-7, 0), {}),
        ((1e9, 1e-7, 1), {"bytes_per_lane": 0}),
        ((1e9, 1e-7, 1), {"loads_per_lane": -1}),
        ((-1e9, 1e-7, -1), {}),
    ],
    ids=str,
)
def test_warps_needed_refuses_nonsense(lab, arguments, options):
    assert_raises(ValueError, lambda: lab.warps_needed(*arguments, **options), f"warps_needed(*{arguments}, **{options})")


# ------------------------------------------------------------------------------------------------------------------- run_warp

EVEN = [("mod", "odd", "lane", 2), ("equal", "even", "odd", 0)]


class Registers(dict):
    def __missing__(self, name):
        raise AssertionError(f"no register {name!r} in the result; it has {', '.join(self)}, and the program wrote it")


def run(lab, program, *arguments, **options):
    """Of a run: registers as plain lists, and the trace as pairs."""
    said = f"run_warp({program}, *{arguments}, **{options})"
    try:
        done = lab.run_warp(program, *arguments, **options)
    except ZeroDivisionError:
        raise AssertionError(f"{said}: a division by zero, in a lane that does not take part in it") from None
    except NotImplementedError:
        raise
    except RuntimeError as e:
        raise AssertionError(f"{said}: {e}; this program ends long before that") from None
    return Registers({name: list(values) for name, values in done.registers.items()}), [
        (issue.op, tuple(issue.lanes)) for issue in done.trace
    ]


def expect(lab, program, trace, *arguments, hint, **options):
    """Check names and numbers of lanes first: they are easier to read than lanes."""
    _, got = run(lab, program, *arguments, **options)
    short = [(op, len(lanes)) for op, lanes in got]
    said = f"{program}{', ' if options else ''}{options or ''}"
    assert_equal(short, [(op, len(lanes)) for op, lanes in trace], "what is issued, for how many lanes", inputs=said, hint=hint)
    assert_equal(got, [(op, tuple(lanes)) for op, lanes in trace], "the trace", inputs=said, hint="lanes in ascending order")


ALL, EVENS, ODDS = range(32), range(0, 32, 2), range(1, 32, 2)


@checks("run_warp")
@pytest.mark.parametrize("op, expected", [("add", 9), ("sub", 5), ("mul", 14), ("mod", 1), ("less", 0), ("equal", 0)])
def test_one_operation(lab, op, expected):
    registers, trace = run(lab, [(op, "c", "a", "b")], {"a": [7] * 32, "b": [2] * 32})
    assert_equal(registers["c"], [expected] * 32, f"c = a {op} b", inputs="a = 7, b = 2 in all lanes")
    assert_equal(trace, [(op, tuple(ALL))], "the trace")


@checks("run_warp")
def test_what_registers_begin_with(lab):
    registers, _ = run(lab, [("add", "x", "lane", "nobody"), ("add", "y", "x", 1)])
    assert_equal(registers["x"], list(ALL), "lane + a register that nobody wrote", hint="it holds 0 in every lane")
    assert_equal(registers["lane"], list(ALL), "lane")
    assert_equal(registers["y"], list(range(1, 33)), "x + 1")
    assert_equal(run(lab, [])[1], [], "the trace of an empty program")


@checks("run_warp")
def test_lane_is_a_register_like_any_other(lab):
    program = [("mul", "lane", "lane", 2), ("add", "x", "lane", 1)]
    registers, _ = run(lab, program, {"y": tuple(ALL)})
    assert_equal(registers["lane"], list(range(0, 64, 2)), "lane", inputs=program, hint="a program may write to it")
    assert_equal(registers["x"], list(range(1, 65, 2)), "x", inputs=program)
    assert_equal(registers["y"], list(ALL), "y, an input that was given as a tuple and never used", inputs=program)


@checks("run_warp")
def test_anything_but_zero_is_true(lab):
    program = [("if", "c", [("add", "x", 1, 0)], [("add", "x", 2, 0)])]
    registers, _ = run(lab, program, {"c": [-1, 0, 7, 1] * 8})
    assert_equal(registers["x"], [1, 2, 1, 1] * 8, "x", inputs=f"{program}, c = -1, 0, 7, 1, ...", hint="not 0, not above 0")


@checks("run_warp")
def test_a_branch_that_divides_the_warp(lab):
    program = [*EVEN, ("if", "even", [("add", "x", 1, 0), ("add", "y", "x", 1)], [("add", "x", 2, 0)]), ("mul", "x", "x", 10)]
    trace = [("mod", ALL), ("equal", ALL), ("if", ALL), ("add", EVENS), ("add", EVENS), ("add", ODDS), ("mul", ALL)]
    expect(lab, program, trace, hint="one side after the other, each for its lanes; then all together again")
    registers, _ = run(lab, program)
    assert_equal(registers["x"], [10, 20] * 16, "x", inputs=program)
    assert_equal(registers["y"], [2, 0] * 16, "y, which odd lanes never write", inputs=program)


@checks("run_warp")
def test_a_branch_that_all_lanes_take_costs_one_side(lab):
    for value, side in ((1, "add"), (0, "sub")):
        program = [("if", "c", [("add", "x", "x", 1)], [("sub", "x", "x", 1)])]
        hint = "a side without lanes issues nothing"
        expect(lab, program, [("if", ALL), (side, ALL)], {"c": [value] * 32}, hint=hint)


@checks("run_warp")
def test_what_then_writes_does_not_change_who_goes_where(lab):
    program = [("if", "c", [("sub", "c", "c", 1), ("add", "x", "x", 1)], [("add", "x", "x", 100)])]
    registers, _ = run(lab, program, {"c": [1, 0] * 16})
    hint = "even lanes run `then`, which sets their c to 0; they must not run `otherwise` as well. Decide once, at the if"
    assert_equal(registers["x"], [1, 100] * 16, "x", inputs=f"{program}, c = 1, 0, 1, 0, ...", hint=hint)


@checks("run_warp")
def test_lanes_that_do_not_take_part_are_not_computed(lab):
    program = [("if", "x", [("mod", "y", 100, "x")], [])]
    registers, _ = run(lab, program, {"x": [0, 7] * 16, "y": [55] * 32})
    assert_equal(registers["y"], [55, 2] * 16, "y", inputs=f"{program}, x = 0, 7, 0, 7, ...", hint="even lanes keep their y")


@checks("run_warp")
def test_a_loop_runs_as_long_as_its_slowest_lane(lab):
    program = [("while", "n", [("sub", "n", "n", 1), ("add", "x", "x", 1)]), ("add", "z", "x", 0)]
    rounds = [lane % 4 for lane in ALL]
    still = [[lane for lane in ALL if lane % 4 > k] for k in range(4)]
    looks = [ALL, *still[:3]]
    trace = [("while", looks[0])]
    for k in range(3):
        trace += [("sub", still[k]), ("add", still[k]), ("while", looks[k + 1])]
    hint = "a look for those still inside, each time round and once when they find 0; then all go on together"
    expect(lab, program, [*trace, ("add", ALL)], {"n": [*rounds]}, hint=hint)
    registers, _ = run(lab, program, {"n": [*rounds]})
    assert_equal(
        registers["x"], rounds, "x", inputs=f"{program}, n = 0, 1, 2, 3, 0, ...", hint="each lane its own number of rounds"
    )
    expect(lab, program, [("while", ALL), ("add", ALL)], {"n": [0] * 32}, hint="one look, no round")


@checks("run_warp")
def test_a_loop_on_a_register_that_nobody_wrote(lab):
    expect(
        lab, [("while", "nobody", [("add", "x", 1, 0)])], [("while", ALL)], hint="it holds 0 in every lane: one look, no round"
    )


@checks("run_warp")
def test_a_long_loop(lab):
    """Three thousand rounds are within the limit. Python's own limit is a thousand calls within one another."""
    registers, trace = run(lab, [("while", "n", [("sub", "n", "n", 1), ("add", "x", "x", 1)])], {"n": [3000] * 32})
    assert_equal(registers["x"], [3000] * 32, "x", inputs="a loop of 3,000 rounds")
    assert_equal(len(trace), 9001, "instructions issued", inputs="3,000 rounds of while, sub, add, and a last look")


@checks("run_warp")
def test_who_has_left_does_not_come_back(lab):
    program = [*EVEN, ("if", "even", [("exit",), ("add", "x", "x", 1)], [("add", "x", "x", 10)]), ("add", "x", "x", 100)]
    trace = [("mod", ALL), ("equal", ALL), ("if", ALL), ("exit", EVENS), ("add", ODDS), ("add", ODDS)]
    expect(lab, program, trace, hint="after the if, the lanes that have not left go on; not the mask from before it")
    registers, _ = run(lab, program)
    assert_equal(registers["x"], [0, 110] * 16, "x", inputs=program)


@checks("run_warp")
def test_leaving_from_inside_a_loop(lab):
    program = [
        ("while", "n", [("sub", "n", "n", 1), ("equal", "last", "n", 1), ("if", "last", [("exit",)], [])]),
        ("add", "x", "x", 1),
    ]
    registers, trace = run(lab, program, {"n": [lane % 2 * 3 for lane in ALL]})
    assert_equal(registers["x"], [1, 0] * 16, "x", inputs=f"{program}, n = 0, 3, 0, 3, ...", hint="odd lanes leave in the loop")
    ops = [op for op, _ in trace]
    assert_equal(ops, ["while", "sub", "equal", "if", "while", "sub", "equal", "if", "exit", "add"], "what is issued",
                 inputs=program, hint="nobody is left to look at n again, so that look is not issued")  # fmt: skip


@checks("run_warp")
@pytest.mark.parametrize("threads", [1, 8, 31, 32])
def test_a_warp_of_fewer_threads(lab, threads):
    registers, trace = run(lab, [("add", "x", "lane", 1), ("exit",), ("add", "x", 0, 0)], threads=threads)
    lanes = tuple(range(threads))
    said = f"threads={threads}"
    assert_equal(trace, [("add", lanes), ("exit", lanes)], "the trace", inputs=said)
    expected = [lane + 1 if lane < threads else 0 for lane in ALL]
    assert_equal(registers["x"], expected, "x, 32 numbers all the same", inputs=said)


@checks("run_warp")
def test_the_callers_lists_stay_as_they_are(lab):
    given_ = {"x": list(ALL)}
    run(lab, [("add", "x", "x", 1)], given_)
    assert_equal(given_, {"x": list(ALL)}, "inputs after the run", hint="copy them before you write to them")


@checks("run_warp")
def test_the_limit_and_a_loop_that_never_ends(lab):
    three = [("if", "x", [], []), ("while", "x", []), ("exit",)]
    assert_equal(len(run(lab, three, limit=3)[1]), 3, "instructions issued", inputs=f"{three}, limit=3", hint="3 are fine")
    assert_raises(RuntimeError, lambda: lab.run_warp(three, limit=2), "an if, a while and an exit are three, limit=2")
    three = [("add", "x", "x", 1)] * 3
    assert_equal(len(run(lab, three, limit=3)[1]), 3, "instructions issued", inputs=f"{three}, limit=3", hint="3 are fine")
    assert_raises(RuntimeError, lambda: lab.run_warp(three, limit=2), "three instructions, limit=2")
    endless = [("while", "lane", [("add", "x", "x", 1)])]
    assert_raises(RuntimeError, lambda: lab.run_warp(endless, limit=50), "an endless loop, limit=50")
    assert_raises(RuntimeError, lambda: lab.run_warp([("while", "lane", [])]), "an endless loop with nothing in it")


@checks("run_warp")
@pytest.mark.parametrize(
    "program, options",
    [
        ([], {"threads": 0}),
        ([], {"threads": 33}),
        ([], {"inputs": {"x": [1, 2, 3]}}),
        ([], {"inputs": {"x": [0] * 33}}),
        ([("jump", "x", 1, 2)], {}),
    ],
    ids=str,
)
def test_run_warp_refuses_nonsense(lab, program, options):
    assert_raises(ValueError, lambda: lab.run_warp(program, **options), f"run_warp({program}, **{options})")


@checks("run_warp")
def test_an_unknown_instruction_that_nobody_reaches(lab):
    program = [("if", "c", [("jump", "x", 1, 2)], [])]
    assert_equal(run(lab, program)[1], [("if", tuple(ALL))], "the trace", inputs=f"{program}, c = 0", hint="it is not reached")


NAMES = st.sampled_from(["a", "b", "c"])
OPERANDS = st.one_of(NAMES, st.just("lane"), st.integers(-2, 3))
ARITHMETIC = st.tuples(st.sampled_from(["add", "sub", "less", "equal"]), NAMES, OPERANDS, OPERANDS)


def counted_loop(depth, name, rounds, body):
    """A loop that ends: its counter is a register that nothing else writes."""
    counter = f"n{depth}"
    less = ("less", f"{counter}more", 0, counter)
    return [
        ("add", counter, name, 0), ("mod", counter, counter, rounds + 1), less,
        ("while", f"{counter}more", [("sub", counter, counter, 1), *body, less]),
    ]  # fmt: skip


def blocks(depth):
    if depth == 0:
        return st.lists(ARITHMETIC, max_size=2)
    inner = blocks(depth - 1)
    one = st.one_of(
        ARITHMETIC.map(lambda i: [i]),
        st.tuples(OPERANDS.filter(lambda o: isinstance(o, str)), inner, inner).map(lambda t: [("if", *t)]),
        st.builds(counted_loop, st.just(depth), st.sampled_from(["a", "lane"]), st.integers(1, 3), inner),
        st.just([("exit",)]),
    )
    return st.lists(one, max_size=3).map(lambda parts: [i for part in parts for i in part])


@checks("run_warp")
@given(blocks(2), st.lists(st.integers(-2, 2), min_size=32, max_size=32), st.sampled_from([1, 20, 32]))
def test_a_warp_is_32_lanes_put_together(lab, program, values, threads):
    inputs = {"a": values, "b": values[::-1]}
    registers, trace = put_together(program, inputs, threads)
    got_registers, got_trace = run(lab, program, inputs, threads=threads)
    said = f"{program}, a = {values}, b = a backwards, threads={threads}"
    hint = "the same as each lane running the program alone"
    for name in {name for lane in registers for name in lane}:
        one_by_one = [lane.get(name, 0) for lane in registers]
        assert_equal(got_registers.get(name), one_by_one, f"register {name!r}", inputs=said, hint=hint)
    short, expected = [[(op, len(lanes)) for op, lanes in t] for t in (got_trace, trace)]
    assert_equal(short, expected, "what is issued, for how many lanes", inputs=said, hint="each point of the program once")
    assert_equal(got_trace, trace, "the trace", inputs=said, hint="lanes in ascending order")
