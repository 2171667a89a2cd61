"""The sections by name, each with its cases: ceilings, correctness, speed, engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from on_gpu.worker import Section, Setting, Work


@dataclass(frozen=True)
class Plan:
    """parts: run at the same time, each in its own process; one where time is measured. seconds: the box, all its parts' starts
    and ends included."""

    name: str
    seconds: float
    parts: tuple[str, ...] = ("",)


QUICK_SECONDS = 60.0
PLANS = (
    Plan("ceilings", 30),
    # compiling takes the time here, one core a process
    Plan("correctness", 95, ("llama-3.1-8b.bfloat16", "llama-3.1-8b.float16", "smollm2-135m.bfloat16", "engine")),
    Plan("speed", 85),
    Plan("engine", 135),
)


def section(name: str) -> Section:
    """Imported here, in the child: what it needs of Triton and the engine loads only there."""
    if name == "ceilings":
        return ceilings
    if name == "correctness":
        from on_gpu.correctness import cases
    elif name == "speed":
        from on_gpu.speed import cases
    else:
        from on_gpu.engine import cases
    return cases


def ceilings(setting: Setting) -> Iterator[tuple[str, Work]]:
    """The card, and what it reaches: a copy, a large matrix product."""
    import torch

    def card(report):
        if setting.rehearsal:
            report.line(card={"name": "no card", "memory_bytes": 0})
            return
        p = torch.cuda.get_device_properties(0)
        report.line(card={
            "name": p.name, "memory_bytes": p.total_memory, "compute_capability": f"{p.major}.{p.minor}",
            "multiprocessors": p.multi_processor_count, "l2_bytes": p.L2_cache_size, "cuda": torch.version.cuda,
        })  # fmt: skip

    def measure(report):
        if setting.rehearsal:
            report.line(ceilings={"bandwidth": 1.0, "flops": 1.0})
            return
        from minillm.kernels.instruments.bench import measure_ceilings

        found = measure_ceilings()
        report.line(ceilings={"bandwidth": found.bandwidth, "flops": found.flops})
        report.measured("ceilings.bandwidth", [found.bandwidth / 1e9], "GB/s", "copying 1 GiB, read and written", dtype="uint8")
        report.measured("ceilings.bf16", [found.flops / 1e12], "TFLOP/s", "a matrix product of 8192³, cuBLAS", dtype="bfloat16")

    yield "card", card
    yield "ceilings", measure
