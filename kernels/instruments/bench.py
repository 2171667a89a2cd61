"""Times GPU kernels, and holds the time against what the card can do.

    ceilings = measure_ceilings()       this card's own copy and matrix product
    sets = input_sets(lambda: (torch.randn(4096, 4096, device="cuda"),), set_bytes=2**26)
    timing = bench(softmax, sets, moved_bytes=2 * 2**26)
    print(timing.summary(ceilings))     milliseconds and their spread, GB/s, and the share of a copy's

Ways in which a timing flatters or slanders, and what is done about each:

- Launches return before the kernel runs: time is taken between two events on the GPU, not by the CPU's clock.
- The first launches compile, load code and raise the clock: they are not counted.
- The data of the previous call lie in the L2 cache: calls rotate through several sets of inputs, together larger than it.
- Launching takes microseconds of CPU, more than a small kernel runs: one pass over the sets is captured in a CUDA graph, so that
  the GPU never waits for the CPU. With graph=False launches are part of the time, as in an engine without graphs.
- A single number hides its noise: the median of many passes, with the spread from the 10th to the 90th percentile.
- A datasheet's peak is no ceiling that a kernel meets: the ceilings are measured on the same card, minutes apart at most.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

CACHES_FILLED = 4  # sets of inputs are together this many times the L2 cache
MOST_SETS = 64
FEWEST_PASSES = 10
MOST_PASSES = 2_000
COPY_BYTES = 2**30
GEMM_SIZE = 8192


class NoGPUError(RuntimeError):
    """There is nothing to time on."""


class Timer(Protocol):
    """How a pass, a function that makes all calls once, is made ready and timed."""

    def ready(self, calls: Callable[[], None]) -> Callable[[], None]: ...

    def seconds(self, calls: Callable[[], None]) -> float: ...


class CudaTimer:
    """Between two events on the current stream. graph: replay the calls from a CUDA graph. Raises NoGPUError without a GPU."""

    def __init__(self, *, graph: bool = True) -> None:
        _require_gpu()
        self._graph = graph

    def ready(self, calls: Callable[[], None]) -> Callable[[], None]:
        if not self._graph:
            return calls
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # compiles, autotunes and allocates before the capture, which must do none of it
            calls()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            calls()
        return graph.replay

    def seconds(self, calls: Callable[[], None]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        calls()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3


@dataclass(frozen=True)
class MeasuredCeilings:
    """bandwidth: bytes/s of a copy, reads and writes together; flops: FLOP/s of a matrix product with `dtype` operands."""

    card: str
    bandwidth: float
    flops: float
    dtype: str


@dataclass(frozen=True)
class Timing:
    """samples: seconds a call, each the mean of one pass over all inputs; moved_bytes, flops: a call's, or None."""

    samples: tuple[float, ...]
    moved_bytes: int | None = None
    flops: float | None = None

    @property
    def seconds(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """From the 10th to the 90th percentile, as a share of the median."""
        ordered = sorted(self.samples)
        low, high = (ordered[round(q * (len(ordered) - 1))] for q in (0.1, 0.9))
        return (high - low) / self.seconds

    @property
    def bandwidth(self) -> float | None:
        """Bytes/s."""
        return None if self.moved_bytes is None else self.moved_bytes / self.seconds

    @property
    def flops_rate(self) -> float | None:
        """FLOP/s."""
        return None if self.flops is None else self.flops / self.seconds

    def bandwidth_share(self, ceilings: MeasuredCeilings) -> float | None:
        return None if self.bandwidth is None else self.bandwidth / ceilings.bandwidth

    def flops_share(self, ceilings: MeasuredCeilings) -> float | None:
        return None if self.flops_rate is None else self.flops_rate / ceilings.flops

    def summary(self, ceilings: MeasuredCeilings | None = None) -> str:
        """One line. Without ceilings, rates alone."""
        parts = [f"{1e3 * self.seconds:.4g} ms ±{50 * self.spread:.1f} %"]
        rates = ((self.bandwidth, 1e9, "GB/s", "bandwidth", "a copy"), (self.flops_rate, 1e12, "TFLOP/s", "flops", "a big GEMM"))
        for rate, scale, unit, name, ideal in rates:
            if rate is not None:
                share = f" ({rate / getattr(ceilings, name):.0%} of {ideal})" if ceilings else ""
                parts.append(f"{rate / scale:,.4g} {unit}{share}")
        return ", ".join(parts)


def bench(
    run: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    *,
    moved_bytes: int | None = None,
    flops: float | None = None,
    warmup_s: float = 0.2,
    measure_s: float = 0.5,
    graph: bool = True,
    timer: Timer | None = None,
) -> Timing:
    """Times run(*inputs[0]), run(*inputs[1]), …

    inputs: sets of arguments, of equal shapes; two at least, see input_sets(). moved_bytes, flops: of one call. warmup_s,
    measure_s: of the GPU's time. timer: in place of CudaTimer. Raises NoGPUError without a GPU, ValueError for too few sets.
    """
    if len(inputs) < 2:
        raise ValueError("bench needs two sets of inputs at least, or the cache holds what it times; see input_sets()")
    timer = timer or CudaTimer(graph=graph)

    def once() -> None:
        for each in inputs:
            run(*each)

    ready = timer.ready(once)
    took = [timer.seconds(ready)]
    while sum(took) < warmup_s and len(took) < MOST_PASSES:
        took.append(timer.seconds(ready))
    passes = min(max(round(measure_s / max(took[-1], 1e-9)), FEWEST_PASSES), MOST_PASSES)
    return Timing(tuple(timer.seconds(ready) / len(inputs) for _ in range(passes)), moved_bytes, flops)


def input_sets(make: Callable[[], Sequence[Any]], set_bytes: int, cache_bytes: int | None = None) -> list[Sequence[Any]]:
    """Calls `make` until the sets, of set_bytes each, are four times the L2 cache (cache_bytes; by default this card's)."""
    if set_bytes < 1:
        raise ValueError(f"a set of inputs has {set_bytes} bytes; give the size of what make() returns")
    if cache_bytes is None:
        _require_gpu()
        cache_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    count = -(-CACHES_FILLED * cache_bytes // set_bytes)
    return [make() for _ in range(min(max(count, 2), MOST_SETS))]


def measure_ceilings(dtype: torch.dtype = torch.bfloat16) -> MeasuredCeilings:
    """What this card reaches: copying 1 GiB, and a matrix product of 8192³ by cuBLAS. Needs 5 GiB free for a moment."""
    _require_gpu()

    def pair() -> tuple[torch.Tensor, torch.Tensor]:
        return tuple(torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))

    def matrices() -> tuple[torch.Tensor, ...]:
        # random numbers: zeros draw less power, and the card then clocks higher than it ever does at work
        a, b = (torch.randn(GEMM_SIZE, GEMM_SIZE, device="cuda").to(dtype) for _ in range(2))
        return a, b, torch.empty_like(a)

    copy = bench(lambda source, copied: copied.copy_(source), [pair(), pair()], moved_bytes=2 * COPY_BYTES)
    product = bench(lambda a, b, c: torch.mm(a, b, out=c), [matrices(), matrices()], flops=2.0 * GEMM_SIZE**3)
    name = torch.cuda.get_device_name()
    return MeasuredCeilings(name, copy.bandwidth, product.flops_rate, str(dtype).removeprefix("torch."))


def _require_gpu() -> None:
    if not torch.cuda.is_available():
        raise NoGPUError("kernels are timed on an NVIDIA GPU, and torch finds none here; inspect and traffic need none")
