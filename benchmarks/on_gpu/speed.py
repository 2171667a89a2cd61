"""Our kernels in bfloat16 beside torch's own and what the card can do: Llama-3.1-8B's shapes, sizes that no cache holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from minillm.kernels.instruments.bench import Timing, bench, input_sets

from on_gpu import cases_attention, cases_products, cases_rows
from on_gpu.cases import Case, set_bytes
from on_gpu.shapes import LLAMA_8B, TINY, Shape
from on_gpu.worker import Report, Setting, Work

DTYPE = torch.bfloat16
KEPT = 21  # samples in the record, of up to 2,000: evenly chosen from the sorted ones, both ends and the median among them


class Rehearsal:
    """In place of bench's timer: runs everything once, and reports no time that could be taken for one."""

    def ready(self, calls: Callable[[], None]) -> Callable[[], None]:
        calls()
        return calls

    def seconds(self, calls: Callable[[], None]) -> float:
        return 1.0


def cases(setting: Setting) -> Iterator[tuple[str, Work]]:
    shape = TINY if setting.rehearsal else LLAMA_8B
    prompt = replace(shape, tokens=shape.context) if not setting.rehearsal else shape  # attention's share of a prompt grows
    measured = (
        *cases_attention.cases(prompt, prompt.tokens),
        *cases_products.cases(shape, shape.tokens, tuned=not setting.rehearsal),
        *cases_rows.cases(shape, shape.many_tokens),
    )
    for case in measured:
        if (case.moved_bytes or case.flops or case.rival) and DTYPE in case.dtypes and setting.sm >= case.min_sm:
            yield case.name, lambda report, case=case: compare(report, setting, case, shape)


def compare(report: Report, setting: Setting, case: Case, shape: Shape) -> None:
    torch.manual_seed(0)
    first = case.make(DTYPE, setting.device)
    moved = case.moved_bytes(DTYPE) if case.moved_bytes else None
    cache_bytes = set_bytes(first) if setting.rehearsal else None
    sets = input_sets(lambda: case.make(DTYPE, setting.device), min(moved or set_bytes(first), set_bytes(first)), cache_bytes)
    sets = sets[:2] if setting.rehearsal else sets
    del first
    options = {"warmup_s": 0.05, "measure_s": 0.25, "moved_bytes": moved, "flops": case.flops}
    options["timer"] = Rehearsal() if setting.rehearsal else None
    ours = bench(case.run, sets, **options)
    record(report, setting, f"speed.{case.name}", case.name, ours, shape)
    if case.rival is not None:
        torchs = bench(case.rival, sets, **options)
        record(report, setting, f"speed.{case.name}.torch", f"{case.name}, torch's own", torchs, shape)
        report.computed(
            f"speed.{case.name}.times_torch", torchs.seconds / ours.seconds, "×", f"{case.name}: speed, torch's = 1",
            formula="torch's seconds / ours, medians", inputs={"torch_s": torchs.seconds, "ours_s": ours.seconds},
        )  # fmt: skip


def record(report: Report, setting: Setting, name: str, title: str, timing: Timing, shape: Shape) -> None:
    """Its rate where there is one, else its time; and the rate's share of the measured ceiling."""
    context = {"dtype": str(DTYPE)[6:], "shape": shape.name, "passes": len(timing.samples), "seconds": timing.seconds}
    rates = (("bandwidth", timing.moved_bytes, 1e9, "GB/s"), ("flops", timing.flops, 1e12, "TFLOP/s"))
    for ceiling, amount, scale, unit in rates:
        if amount is None:
            continue
        context |= {"moved_bytes" if ceiling == "bandwidth" else "flops": amount}
        report.measured(name, thinned([amount / s / scale for s in timing.samples]), unit, title, **context)
        if setting.ceilings:
            limit = setting.ceilings[ceiling]
            report.computed(
                f"{name}.share", 100 * amount / timing.seconds / limit, "%", f"{title}: of the measured {ceiling}",
                formula="100 · amount / seconds / ceiling",
                inputs={"amount": amount, "seconds": timing.seconds, "ceiling": limit},
            )  # fmt: skip
        return
    report.measured(name, thinned([1e6 * s for s in timing.samples]), "µs", title, **context)


def thinned(samples: list[float]) -> list[float]:
    ordered = sorted(samples)
    if len(ordered) <= KEPT:
        return ordered
    return [ordered[round(i * (len(ordered) - 1) / (KEPT - 1))] for i in range(KEPT)]
