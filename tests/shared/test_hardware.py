import math

import pytest

from shared import hardware
from shared.hardware import Ceilings
from shared.sources import TableError, UnverifiedError

# Ridge points of the bf16 peak accumulated in fp32, FLOP/byte.
RIDGES = {
    "rtx-3090": 76,
    "rtx-4090": 164,
    "rtx-5090": 117,
    "a10g": 117,
    "l4": 403,
    "l40s": 419,
    "a100-40-sxm": 201,
    "a100-80-sxm": 153,
    "h100-pcie": 378,
    "h100-sxm": 295,
    "h200": 206,
    "b200": 281,
    "gb200": 313,
    "mi300x": 247,
    "mi325x": 218,
    "mi355x": 315,
    "gaudi-3": 453,
    "tpu-v5e": 241,
    "tpu-v6e": 560,
    "m3-ultra": 35,
    "m4-max": 33,
    "xeon-8480-x2": 373,
}


def test_ridges_of_all():
    found = {}
    for name in set(hardware.names()) - {"h100-nvl"}:  # no peak was looked up for it
        ceilings = hardware.load(name, allow_unverified=True).ceilings()
        found[name] = ceilings.peak_flops / ceilings.bandwidth
    assert found == {name: pytest.approx(ridge, abs=0.51) for name, ridge in RIDGES.items()}


def test_rtx_4090():
    gpu = hardware.load("rtx-4090")
    assert gpu.memory_bytes == 24_564 * 2**20
    assert gpu.bandwidth == pytest.approx(384 * 21e9 / 8)
    assert gpu.peak() == gpu.peak("fp16") == 165.2e12
    assert gpu.peak("fp16", "fp16") == gpu.peak("fp8") == 330.3e12  # accumulating in fp32 costs a GeForce card half
    assert gpu.peak("int8") == 660.6e12
    assert gpu.ceilings("fp8") == Ceilings(330.3e12, 1008e9)
    assert "mfu.h" in gpu.peaks[0].fact.source.title


def test_data_centre_parts_do_not_pay_for_accumulating_in_fp32():
    assert hardware.load("h100-sxm").peak("fp8") == 1979e12
    assert hardware.load("b200").peak("fp4") == 9000e12


def test_gb_and_gib_are_not_mixed():
    assert hardware.load("h200").memory_bytes == 141e9
    assert hardware.load("rtx-3090").memory_bytes == 24 * 2**30


def test_links_say_their_direction():
    (nvlink,) = hardware.load("h100-sxm").links
    assert (nvlink.fact.value, nvlink.direction, nvlink.each_way) == (900e9, "both ways", 450e9)
    (ethernet,) = hardware.load("gaudi-3").links
    assert (ethernet.direction, ethernet.each_way) == ("each way", 600e9)
    assert hardware.load("h100-sxm").link_bandwidth("NVLink") == 450e9
    assert hardware.load("rtx-4090").link_bandwidth("PCIe") == 32e9
    with pytest.raises(TableError, match=r"rtx-4090: .* no link 'NVLink'; it has PCIe"):
        hardware.load("rtx-4090").link_bandwidth("NVLink")
    with pytest.raises(UnverifiedError, match="mi300x: Infinity Fabric"):
        hardware.load("mi300x").link_bandwidth("Infinity")
    assert hardware.load("mi300x", allow_unverified=True).link_bandwidth("Infinity") == 448e9


def test_measured_share_of_the_peak():
    shares = {name: hardware.load(name).value("gemm_share") for name in ("a100-80-sxm", "h100-sxm", "mi300x")}
    assert shares == {"a100-80-sxm": 0.869, "h100-sxm": 0.803, "mi300x": 0.514}


def test_prices_are_dated():
    price = hardware.load("h100-sxm").fact("price_per_hour")
    assert price.value == pytest.approx(38 / 8)
    assert price.source.date == "2023-11"


def test_values_from_memory_are_refused_unless_asked_for():
    with pytest.raises(UnverifiedError, match=r"a10g: the bf16 peak .* unverified .* allow_unverified=True"):
        hardware.load("a10g").ceilings()
    with pytest.raises(UnverifiedError, match="a100-40-sxm: bandwidth"):
        _ = hardware.load("a100-40-sxm").bandwidth
    assert hardware.load("a10g", allow_unverified=True).ceilings() == Ceilings(70e12, 600e9)
    assert hardware.load("a10g").bandwidth == 600e9  # the card has looked-up values too
    assert not hardware.load("a10g").fact("memory").source.verified  # and one may always look


def test_every_value_has_a_source_and_some_are_not_verified():
    facts = [f for name in hardware.names() for f in hardware.load(name).facts.values()]
    facts += [p.fact for name in hardware.names() for p in hardware.load(name).peaks]
    assert all(f.source.title and f.source.date and math.isfinite(f.value) and f.value > 0 for f in facts)
    assert {f.source.verified for f in facts} == {True, False}


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda: hardware.load("rtx-9999"), "no accelerator 'rtx-9999'.*rtx-4090"),
        (lambda: hardware.load("l4").fact("gemm_share"), "l4: .* states no 'gemm_share'; it has memory"),
        (lambda: hardware.load("rtx-3090").peak("fp8"), "no peak for fp8 accumulated in fp32; it has bf16 into fp32"),
        (lambda: hardware.load("h100-sxm").peak("bf16", "fp16"), "bf16 accumulated in fp16"),
    ],
)
def test_what_is_not_in_the_table_is_named(ask, message):
    with pytest.raises(TableError, match=message):
        ask()


GOOD = """
[sources.a]
title = "a page"
date = "2026-11"
how = "read"
[x]
name = "X"
memory = { value = 24, unit = "GiB", source = "a" }
peaks = [{ dtype = "bf16", accumulate = "fp32", value = 1, unit = "TFLOP/s", source = "a" }]
"""


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('source = "a" }\npeaks', 'source = "b" }\npeaks', r"\[x\]: there is no source 'b'"),
        ('unit = "GiB"', 'unit = "G"', "ambiguous"),
        ('unit = "GiB"', 'unit = "GB/s"', "a unit of B/s, not of B"),
        ('unit = "GiB", ', "", "needs a unit of B"),
        ('how = "read"', 'how = "guess"', "how is 'guess'"),
        ('date = "2026-11"\n', "", "date"),
        ('dtype = "bf16"', 'dtype = "bf61"', "dtype is 'bf61'"),
        ('accumulate = "fp32", ', "", "accumulate' is missing"),
        ("memory =", "memmory =", "no fact is called memmory"),
    ],
)
def test_a_faulty_table_says_where(tmp_path, monkeypatch, old, new, message):
    table = tmp_path / "hardware.toml"
    monkeypatch.setattr(hardware, "TABLE", table)
    hardware._table.cache_clear()
    try:
        table.write_text(GOOD)
        assert hardware.load("x").peak() == 1e12
        hardware._table.cache_clear()
        assert old in GOOD
        table.write_text(GOOD.replace(old, new))
        with pytest.raises(TableError, match=message):
            hardware.load("x")
    finally:
        hardware._table.cache_clear()


def test_ceilings_refuse_nonsense():
    with pytest.raises(ValueError, match="bandwidth must be above zero"):
        Ceilings(1e12, 0)
