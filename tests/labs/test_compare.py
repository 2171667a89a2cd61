"""A comparison that fails says where, how much, and what it looks like."""

import numpy as np
import pytest
import torch

from labs.kit.compare import assert_close, assert_equal, assert_raises


def message(got, expected, **options) -> str:
    options = {"atol": 1e-6, "rtol": 0} | options
    with pytest.raises(AssertionError) as caught:
        assert_close(got, expected, "y", **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "got, expected",
    [
        (torch.ones(2, 3), torch.ones(2, 3)),
        (torch.ones(2, 3), np.ones((2, 3))),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
        ([1.0, float("nan"), float("inf")], [1.0, float("nan"), float("inf")]),
        (3, 3.0),
        (torch.zeros(0, 4), torch.zeros(0, 4)),
        ([1.0000001], [1.0]),
    ],
)
def test_equal_things_pass(got, expected):
    assert_close(got, expected, "y", atol=1e-6, rtol=0)


def test_the_first_difference_and_the_largest():
    got, expected = torch.zeros(2, 3), torch.zeros(2, 3)
    got[0, 2], got[1, 0] = 0.5, -4.0
    said = message(got, expected, inputs="x = 0", hint="look again")
    for part in (
        "y: not as expected",
        "x = 0",
        "at index [0, 2]",
        "got      0.5",
        "2 of 6 values",
        "difference is 4",
        "likely   look again",
    ):
        assert part in said


def test_tolerances_are_of_the_expected_value():
    assert_close([101.0], [100.0], "y", atol=0, rtol=0.01)
    assert "allowed are atol=0, rtol=0.01" in message([101.1], [100.0], atol=0, rtol=0.01)


def test_shapes_and_exchanged_axes():
    x = torch.arange(24.0).view(2, 3, 4)
    assert "axes 1 and 2 exchanged" in message(x.transpose(1, 2), x)
    square = torch.arange(9.0).view(3, 3)
    assert "axes 0 and 1 exchanged" in message(square.T, square)
    said = message(torch.zeros(5), torch.zeros(4))
    assert "expected shape [4]" in said and "got      shape [5]" in said and "exchanged" not in said
    assert "only the shape differs" in message(x.flatten(), x)


def test_dtypes_nan_and_inf():
    assert "got      dtype torch.float64" in message(torch.zeros(2, dtype=torch.float64), torch.zeros(2))
    said = message(torch.tensor([1.0, float("nan"), float("inf")]), torch.tensor([1.0, 2.0, 3.0]))
    assert "1 of the values that came out is NaN, 0 should be" in said and "is infinite" in said
    assert "expected inf" in message([float("-inf")], [float("inf")])


@pytest.mark.parametrize("got", [None, "text", [[1], [1, 2]], object()])
def test_what_is_no_number_is_told(got):
    assert "expected" in message(got, torch.ones(2))


def test_none_asks_for_the_return():
    assert "is a return missing?" in message(None, 3.0)


@pytest.mark.parametrize("got, expected", [(1, 2), (1, True), (None, False), (0, False), ([1], [2]), ("a", "b")])
def test_plain_values_differ(got, expected):
    with pytest.raises(AssertionError, match="not as expected") as caught:
        assert_equal(got, expected, "f(x)", inputs={"x": 1}, hint="a hint")
    assert repr(got) in str(caught.value) and "{'x': 1}" in str(caught.value)


def test_plain_values_agree():
    assert_equal([1, 2], [1, 2], "f")
    assert_equal(True, True, "f")


def test_long_values_are_cut():
    with pytest.raises(AssertionError, match="characters") as caught:
        assert_equal(list(range(5000)), [], "f")
    assert len(str(caught.value)) < 1000


def test_an_exception_is_expected():
    assert_raises(ValueError, lambda: int("x"), "int('x')", match="LITERAL")
    for call, error, match in (
        (lambda: 3, ValueError, None),
        (lambda: 1 / 0, ValueError, None),
        (lambda: int("x"), ValueError, "zzz"),
    ):
        with pytest.raises(AssertionError, match="expected"):
            assert_raises(error, call, "f(-1)", match=match)


def test_a_part_that_is_not_written_is_not_taken_for_an_answer():
    def unwritten():
        raise NotImplementedError

    for error in (ValueError, RuntimeError):  # NotImplementedError is a RuntimeError
        with pytest.raises(NotImplementedError):
            assert_raises(error, unwritten, "f()")
