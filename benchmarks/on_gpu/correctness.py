"""Every kernel against its twin in plain torch, computed in float32; and the engine's tokens with our kernels against torch's."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from on_gpu import cases_attention, cases_products, cases_rows, parity
from on_gpu.cases import Case, error, widened
from on_gpu.shapes import LLAMA_8B, SMOLLM2, TINY, Shape
from on_gpu.worker import Report, Setting, Work


def cases(setting: Setting) -> Iterator[tuple[str, Work]]:
    if setting.part == "engine":
        yield from parity.cases(setting)
        return
    model, dtype_name = setting.part.rsplit(".", 1)
    shape, dtype = next(s for s in (LLAMA_8B, SMOLLM2) if s.name == model), getattr(torch, dtype_name)
    shape = TINY if setting.rehearsal else shape
    for case in every(shape):
        if dtype in case.dtypes and setting.sm >= case.min_sm:
            name = f"{case.name}.{setting.part}".lower()
            yield name, lambda report, case=case, name=name: check(report, setting, case, name, shape, dtype)


def every(shape: Shape) -> list[Case]:
    return [
        *cases_rows.cases(shape, shape.tokens),
        *cases_attention.cases(shape, shape.tokens),
        *cases_products.cases(shape, shape.tokens, tuned=False),
    ]


def check(report: Report, setting: Setting, case: Case, name: str, shape: Shape, dtype: torch.dtype) -> None:
    """One kernel's error, recorded; AssertionError if it is more than the case allows."""
    torch.manual_seed(0)
    inputs = case.make(dtype, setting.device)
    expected = case.twin(*widened(inputs))  # first: a kernel may write into its inputs, and `widened` copies what is 16 bits wide
    got = case.run(*inputs)
    found = error(got, expected, case.rounding)
    unit = "share unequal" if case.rounding is None else "eps"
    if found != float("inf"):
        title = f"{case.name}, {setting.part}: largest error"
        report.measured(f"correctness.{name}", [found], unit, title, dtype=str(dtype)[6:], shape=shape.name, allowed=case.allowed)
    assert found <= case.allowed, f"the error is {found:.4g} {unit}, {case.allowed:.4g} are allowed"
