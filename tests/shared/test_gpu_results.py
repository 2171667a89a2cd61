"""Recordings of `make gpu` in a notebook."""

import pytest

from shared.environment import capture
from shared.evidence import EvidenceError, computed, measured
from shared.gpu_results import NONE_YET, recordings, show_on_gpus
from shared.results import save

ABSENT = dict.fromkeys(("checkpoint", "dtype", "input_tokens", "output_tokens", "concurrency"))


def record(folder, card, date, rate):
    """What benchmarks/on_gpu/record.py writes, of two kernels."""
    machine = {**capture(), "date": f"{date}T10:00:00Z", "versions": {"torch": "2.13.0", "triton": "3.7.1"}}
    machine["gpus"] = [{"name": f"NVIDIA {card.upper()}", "memory_bytes": 24 * 2**30, "driver": "580.1"}]
    rows = [
        measured(f"speed.{name}", [rate, rate + 1], "GB/s", environment=machine, **ABSENT)
        for name in ("gemv.1", "gemv.1.torch", "gemm", "gemv_other")
    ]
    share = computed("speed.gemv.1.share", 90, "%", formula="rate / ceiling", inputs={"rate": rate})
    other = measured("correct.gemv.1", 0.1, "", environment=machine, **ABSENT)
    save(folder / f"gpu-{card}-{date}.json", "Kernels", "python benchmarks/gpu.py", [*rows, share, other], machine)


def test_without_a_recording_one_line_says_so(tmp_path, capsys):
    show_on_gpus("gemv", folder=tmp_path)
    assert capsys.readouterr().out == NONE_YET + "\n"


def test_card_date_versions_and_the_kernels_asked_for(tmp_path, capsys):
    record(tmp_path, "rtx-4090", "2026-12-01", 900)
    show_on_gpus("gemv", folder=tmp_path)
    said = capsys.readouterr().out
    assert said.startswith("NVIDIA RTX-4090, 2026-12-01 (torch 2.13.0, triton 3.7.1, driver 580.1)\n")
    assert [line.split("  ")[0] for line in said.splitlines()[1:]] == [
        "rtx-4090.speed.gemv.1", "rtx-4090.speed.gemv.1.torch", "rtx-4090.speed.gemv.1.share",
    ]  # fmt: skip
    assert "measured" in said
    assert NONE_YET not in said


def test_each_cards_newest(tmp_path, capsys):
    for card, date, rate in (("l4", "2026-12-02", 300), ("l4", "2026-11-30", 200), ("rtx-4090", "2026-12-01", 900)):
        record(tmp_path, card, date, rate)
    assert {name: run["speed.gemm"].value for name, run in recordings(tmp_path)} == {"l4": 300.5, "rtx-4090": 900.5}
    show_on_gpus("gemv", "gemm", folder=tmp_path)
    said = capsys.readouterr().out
    assert said.index("NVIDIA L4, 2026-12-02") < said.index("NVIDIA RTX-4090")


def test_recordings_that_know_nothing_of_a_kernel(tmp_path, capsys):
    record(tmp_path, "l4", "2026-12-02", 300)
    show_on_gpus("paged_decode", folder=tmp_path)
    assert capsys.readouterr().out == NONE_YET + "\n"


def test_a_broken_recording_is_named(tmp_path):
    (tmp_path / "gpu-l4-2026-12-02.json").write_text("{")
    with pytest.raises(EvidenceError, match="gpu-l4-2026-12-02"):
        show_on_gpus("gemm", folder=tmp_path)
