"""The warp interpreter: what a branch, a loop and an exit cost. The lab's checks compare it with 32 lanes that run alone."""

import pytest

from shared.simt import LANES, run_warp

ADD = ("add", "x", "x", 1)


def costs(program, **inputs):
    run = run_warp(program, inputs)
    return run.issued, run.utilisation


def test_the_example_of_the_module():
    run = run_warp([("less", "negative", "x", 0), ("if", "negative", [("sub", "x", 0, "x")], [])], {"x": [-5, 7] * 16})
    assert run.registers["x"] == [5, 7] * 16
    assert (run.issued, run.utilisation) == (3, pytest.approx(5 / 6))


def test_an_if_costs_by_disagreement_not_by_being_there():
    program = [("if", "c", [ADD] * 10, [ADD] * 10)]
    assert costs(program, c=[1] * 32) == costs(program, c=[0] * 32) == (11, 1.0)
    assert costs(program, c=[1] * 31 + [0]) == (21, pytest.approx((32 + 10 * 32) / (32 * 21)))


@pytest.mark.parametrize("ways", [1, 2, 4, 8, 16, 32])
def test_lanes_that_go_different_ways_wait_for_each_other(ways):
    program = [("mod", "way", "lane", ways)]
    for way in range(ways):
        program += [("equal", "mine", "way", way), ("if", "mine", [ADD] * 100, [])]
    issued, utilisation = costs(program)
    assert issued == 1 + 102 * ways
    assert utilisation == pytest.approx((32 + ways * 2 * 32 + 100 * 32) / (32 * issued))


def test_a_loop_costs_what_its_slowest_lane_costs():
    rounds = [1] * 31 + [100]
    issued, _ = costs([("while", "n", [("sub", "n", "n", 1), ADD])], n=rounds)
    assert issued == 1 + 3 * 100


def test_a_lane_that_left_is_gone():
    run = run_warp([("if", "lane", [("exit",)], []), ADD])
    assert run.registers["x"] == [1] + [0] * 31
    assert [len(issue.lanes) for issue in run.trace] == [32, 31, 1]


def test_a_tail_warp_wastes_its_other_lanes():
    run = run_warp([ADD], threads=8)
    assert run.utilisation == 8 / LANES and run.registers["x"] == [1] * 8 + [0] * 24


def test_no_average_of_nothing():
    with pytest.raises(ValueError, match="nothing was issued"):
        _ = run_warp([]).utilisation


@pytest.mark.parametrize("arguments, error, says", [
    (([], None, 0), ValueError, "1 to 32 threads"),
    (([], {"x": [1]}), ValueError, "'x' has 1 values"),
    (([("jump", "x", 1, 2)],), ValueError, "no instruction 'jump'"),
    (([("while", "lane", [ADD])], None, 32, 20), RuntimeError, "more than 20 instructions"),
])  # fmt: skip
def test_errors_say_what_is_wrong(arguments, error, says):
    with pytest.raises(error, match=says):
        run_warp(*arguments)
