"""From what torch.profiler exports of a CPU to a Trace: which calls nest in which, and the FLOPs and bytes of each.

with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler, record_function("step"):
    step()
profiler.export_chrome_trace("trace.json")
trace = from_chrome(json.loads(Path("trace.json").read_text()), peak_flops=..., bandwidth=...)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shared.bound import Event, Trace

SIZES = {"float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "int": 4, "signed char": 1, "bool": 1}
# They look at memory or reserve some, and touch none of it.
NO_DATA = {
    "view", "_unsafe_view", "as_strided", "_reshape_alias", "alias", "detach", "slice", "narrow", "select", "expand", "transpose",
    "t", "permute", "unsqueeze", "squeeze", "flatten", "unflatten", "split", "chunk", "reshape", "to", "resolve_conj",
    "resolve_neg", "result_type", "empty", "empty_strided", "empty_like", "resize_", "item", "_local_scalar_dense", "is_nonzero",
}  # fmt: skip
ROWS = {"index_select", "gather", "index"}  # of a table: as many are touched as are asked for
MATRIX = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2)}


def from_chrome(raw: Mapping[str, Any], *, peak_flops: float, bandwidth: float, step: str = "step", about: str = "") -> Trace:
    """The Trace of the annotated span `step` on its thread. raw: the exported JSON, made with record_shapes=True.

    FLOPs are those of matrices, attention's among them: two for a multiply-add, the causal mask ignored. Bytes: what a call
    reads and writes, each element once; elements that an expanded tensor repeats are one. The innermost call that has any work
    has all of it, its callers none.
    Raises ValueError for a trace of a GPU, whose kernels do not say what they move, and for no span of that name, or several.
    """
    if any(e.get("cat") == "kernel" for e in raw["traceEvents"]):
        raise ValueError("this is a trace of a GPU: from_chrome reads those of a CPU; profile with ProfilerActivity.CPU alone")
    spans = [e for e in raw["traceEvents"] if e.get("cat") == "user_annotation" and e["name"] == step]
    if len(spans) != 1:
        raise ValueError(f"{len(spans)} spans are called {step!r}, not one; wrap a single step in record_function({step!r})")
    [span] = spans
    begin, end = span["ts"], span["ts"] + span["dur"]
    calls = [
        e
        for e in raw["traceEvents"]
        if e.get("cat") == "cpu_op" and e["tid"] == span["tid"] and begin <= e["ts"] and e["ts"] + e["dur"] <= end
    ]
    calls.sort(key=lambda e: (e["ts"], -e["dur"]))
    events: list[Event] = []
    within = math.inf  # start of the earliest call seen that has work: going backwards, callers come after what they call
    for call in reversed(calls):
        name = call["name"].removeprefix("aten::")
        is_caller = within < call["ts"] + call["dur"]
        flops, moved = (0.0, 0.0) if is_caller else work(name, call.get("args", {}))
        if flops or moved:
            within = call["ts"]
        events.append(Event(name, (call["ts"] - begin) / 1e6, call["dur"] / 1e6, flops, moved))
    events.reverse()
    return Trace(span["dur"] / 1e6, peak_flops, bandwidth, tuple(events), about)


def work(name: str, args: Mapping[str, Any]) -> tuple[float, float]:
    """FLOPs and bytes of one call of torch. name: without "aten::".

    args: "Input Dims", "Input Strides" and "Input type", as the profiler writes them.
    """
    dims, strides, types = (args.get(key, ()) for key in ("Input Dims", "Input Strides", "Input type"))
    inputs = [
        (shape, stride, SIZES[kind])
        for shape, stride, kind in zip(dims, strides, types, strict=True)
        if kind in SIZES and shape and not isinstance(shape[0], list)
    ]
    if name in NO_DATA or not inputs:
        return 0.0, 0.0
    read = [_elements(shape, stride) * size for shape, stride, size in inputs]
    if name in MATRIX:
        (left, _, size), (right, _, _) = (inputs[i] for i in MATRIX[name])
        written = math.prod(left[:-1]) * right[-1]
        return 2.0 * written * left[-1], sum(read) + float(written * size)
    if name in ROWS:
        table, size = inputs[0][0], inputs[0][2]
        rows = math.prod(inputs[1][0]) if len(inputs) > 1 else 1
        return 0.0, 2.0 * rows * math.prod(table[1:]) * size
    return 0.0, sum(read) + float(max(read))


def _elements(shape: Sequence[int], stride: Sequence[int]) -> int:
    return math.prod(n for n, step in zip(shape, stride, strict=True) if step)
