import math

import pytest

from shared import units


@pytest.mark.parametrize(
    "text, unit, expected",
    [
        ("24 GB", "B", 24e9),
        ("24 GiB", "B", 25_769_803_776),
        ("24564MiB", "B", 25_757_220_864),
        ("1008 GB/s", "B/s", 1.008e12),
        ("10 Gbit/s", "B/s", 1.25e9),
        ("165.2 TFLOP/s", "FLOP/s", 165.2e12),
        ("660.6 TOP/s", "OP/s", 660.6e12),
        ("333 µs", "s", 333e-6),
        ("333 us", "s", 333e-6),
        ("2 h", "s", 7200),
        ("1.5e3 tokens/s", "tokens/s", 1500),
        ("450 W", "W", 450),
        ("1_830 MHz", "Hz", 1.83e9),
    ],
)
def test_parse(text, unit, expected):
    assert units.parse(text, unit) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "text, unit, hint",
    [
        ("24", "B", "followed by a unit"),
        ("GB", "B", "followed by a unit"),
        ("24 G", "B", "GB for 1000s or GiB for 1024s"),
        ("24 Gb", "B", "Gbit for bits or GB for bytes"),
        ("10 Gb/s", "B/s", "Gbit for bits"),
        ("24 KB", "B", "KiB"),
        ("24 gb", "B", "not a unit of B"),
        ("1008 GB/s", "B", "a unit of B/s, not of B"),
        ("24 GB", "B/s", "a unit of B, not of B/s"),
        ("660 TOP/s", "FLOP/s", "a unit of OP/s"),
        ("5 km", "km", "no base unit"),
    ],
)
def test_parse_refuses_what_could_be_misread(text, unit, hint):
    with pytest.raises(units.UnitError, match=hint.replace("/", "[/]")):
        units.parse(text, unit)


@pytest.mark.parametrize(
    "number_of_bytes, unit, expected",
    [
        (16.060522496e9, None, "16.06 GB"),
        (16.060522496e9, "GB", "16.06 GB"),
        (16.060522496e9, "GiB", "14.96 GiB"),
        (131_072, "KiB", "128 KiB"),
        (131_072, None, "131.1 kB"),
        (23_040, "B", "23,040 B"),
        (999, None, "999 B"),
        (0, None, "0 B"),
        (0.5, None, "0.5 B"),
    ],
)
def test_bytes_text(number_of_bytes, unit, expected):
    assert units.bytes_text(number_of_bytes, unit) == expected


def test_other_texts():
    assert units.seconds_text(15.93e-3) == "15.93 ms"
    assert units.seconds_text(3.065) == "3.065 s"
    assert units.seconds_text(180) == "180 s"
    assert units.seconds_text(333.4e-6) == "333.4 µs"
    assert units.seconds_text(5e-9) == "5 ns"
    assert units.seconds_text(0) == "0 s"
    assert units.flops_text(176.3e12) == "176.3 TFLOP"
    assert units.rate_text(62.7626) == "62.76 tokens/s"


def test_texts_can_be_read_again():
    for size in (1.0, 12.5, 999.0, 1e3, 16.06e9, 5e14):
        assert units.parse(units.bytes_text(size), "B") == pytest.approx(size)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_positive_refuses(value):
    with pytest.raises(ValueError, match=f"bandwidth must be above zero, got {value}"):
        units.positive(peak=1, bandwidth=value)


def test_not_negative():
    units.not_negative(tokens=0, price=1.5)
    for value in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match="tokens must not be negative"):
            units.not_negative(tokens=value)
