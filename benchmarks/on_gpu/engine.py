"""minillm with a model of Llama-3.1-8B's shape and random weights, within the memory of a 24 GB card: prompts and decodes, with
our kernels and with torch's, with CUDA graphs and without, in bfloat16 and int4."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from on_gpu.build import SMALL, close, make_llm, small_folder
from on_gpu.worker import Report, Setting, Work

MODEL = "llama-3.1-8b"
CAP_BYTES = 24e9  # of torch's allocator; a card of 24 GiB has 1.8 GB more, for CUDA's own context and code
VARIANTS = (  # what counts most first: the time box may cut the others off
    {"dtype": "bf16", "kernels": "triton", "graphs": True},
    {"dtype": "int4", "kernels": "triton", "graphs": True},
    {"dtype": "bf16", "kernels": "torch", "graphs": True},
    {"dtype": "bf16", "kernels": "triton", "graphs": False},
    {"dtype": "bf16", "kernels": "torch", "graphs": False},
    {"dtype": "int4", "kernels": "triton", "graphs": False},
)  # int4 with torch's kernels runs on a CPU only
GREEDY, DRAWN = {"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9}


@dataclass(frozen=True)
class Sizes:
    prompt: int = 2048
    context: int = 512  # of each sequence when decoding begins
    batch: int = 32
    steps: int = 24
    repeats: int = 3
    cache_bytes: int | None = 3_000_000_000


TINY_SIZES = Sizes(prompt=12, context=5, batch=2, steps=1, repeats=1, cache_bytes=None)


def cases(setting: Setting) -> Iterator[tuple[str, Work]]:
    for variant in VARIANTS:
        name = ".".join((variant["dtype"], variant["kernels"], "graphs" if variant["graphs"] else "eager"))
        yield name, lambda report, v=variant, name=name: measure(report, setting, name, v)


def measure(report: Report, setting: Setting, name: str, variant: dict[str, Any]) -> None:
    sizes, context = (TINY_SIZES if setting.rehearsal else Sizes()), {"checkpoint": f"{MODEL}, random weights"}
    if not setting.rehearsal:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, CAP_BYTES / total))
        torch.cuda.reset_peak_memory_stats()
        context |= {"memory_cap_gb": min(CAP_BYTES, total) / 1e9, "capped": "torch's allocator", "card_memory_gb": total / 1e9}
    quantized = {"quantization": "int4", "quantization_group_size": 32 if setting.rehearsal else 128}
    options = quantized if variant["dtype"] == "int4" else {}
    options |= {
        "dtype": "float32" if setting.rehearsal else "bfloat16", "kernels": variant["kernels"], "graphs": variant["graphs"],
        "max_model_len": sizes.prompt + 64, "max_num_seqs": sizes.batch, "max_num_batched_tokens": sizes.prompt,
        "kv_cache_memory_bytes": sizes.cache_bytes,
    }  # fmt: skip
    with small_folder(SMALL) as small:
        began = time.perf_counter()
        llm = make_llm(setting, str(small) if setting.rehearsal else MODEL, **options)
        context["dtype"] = variant["dtype"]
        load = {**context, "input_tokens": None, "output_tokens": None, "concurrency": None}
        report.measured(f"engine.{name}.load_s", [time.perf_counter() - began], "s", f"{name}: load, graphs included", **load)
        try:
            run = Run(report, setting, name, llm, sizes, context)
            run.prompts()
            run.decodes(1, GREEDY, "decode_1")
            run.decodes(sizes.batch, GREEDY, f"decode_{sizes.batch}")
            run.decodes(sizes.batch, DRAWN, f"decode_{sizes.batch}_top_p")
            if not setting.rehearsal:
                peak = torch.cuda.max_memory_reserved() / 1e9
                report.measured(f"engine.{name}.peak_memory_gb", [peak], "GB", f"{name}: most memory reserved", **load)
        finally:
            close(llm)


class Run:
    """The measurements of one engine."""

    def __init__(self, report: Report, setting: Setting, name: str, llm: Any, sizes: Sizes, context: dict[str, Any]):
        self.report, self.setting, self.name, self.sizes, self.context = report, setting, name, sizes, context
        self.engine, self.random = llm.engine, random.Random(0)
        self.forward_s: list[float] = []
        self.engine.runner.forward = self._timed(self.engine.runner.forward)

    def _timed(self, forward: Callable) -> Callable:
        """The model alone: from the moment its inputs are on the GPU until its logits are there."""

        def timed(batch):
            self.setting.synchronize()
            began = time.perf_counter()
            logits = forward(batch)
            self.setting.synchronize()
            self.forward_s.append(time.perf_counter() - began)
            return logits

        return timed

    def prompts(self) -> None:
        """One prompt at a time, its first token included."""
        seconds = []
        for _ in range(1 + self.sizes.repeats):  # the first one compiles
            self._add(self.sizes.prompt, 1, GREEDY)
            seconds.append(self._step(1))
        rates = [self.sizes.prompt / s for s in seconds[1:]]
        work = {"input_tokens": self.sizes.prompt, "output_tokens": 1, "concurrency": 1}
        self.report.measured(
            f"engine.{self.name}.prefill", rates, "tokens/s", f"{self.name}: a prompt of {self.sizes.prompt}",
            **self.context, **work,
        )  # fmt: skip

    def decodes(self, batch: int, sampling: dict[str, float], title: str) -> None:
        """`steps` steps in which `batch` sequences get a token each."""
        context, steps = self.sizes.context if batch > 1 else min(self.sizes.context, 128), self.sizes.steps
        for _ in range(batch):
            self._add(context, steps + batch * context // self.sizes.prompt + 8, sampling)
        scheduler = self.engine.scheduler
        while scheduler.waiting or any(r.num_output_tokens < 3 for r in scheduler.running):
            self.engine.step_text()
        self.forward_s.clear()
        seconds, moved = [], []
        for _ in range(steps):
            moved.append(self._bytes())
            seconds.append(self._step(batch))
        self.engine.abort([r.request_id for r in list(scheduler.running)])
        work = {"input_tokens": context, "output_tokens": steps, "concurrency": batch}
        about, name = {**self.context, **work}, f"engine.{self.name}.{title}"
        self.report.measured(name, [batch / s for s in seconds], "tokens/s", f"{self.name}: {title}", **about)
        forward = [1e3 * s for s in self.forward_s]
        self.report.measured(f"{name}.forward", forward, "ms", f"{self.name}: {title}, the model alone", **about)
        if self.setting.ceilings:
            for part, times in (("step", seconds), ("forward", self.forward_s)):
                self._share(f"{name}.{part}_share", f"{self.name}: {title}, {part}", median(moved), median(times))

    def _share(self, name: str, title: str, moved: float, seconds: float) -> None:
        limit = self.setting.ceilings["bandwidth"]
        self.report.computed(
            name, 100 * moved / seconds / limit, "%", f"{title}: of the measured bandwidth",
            formula="100 · (bytes of weights + of K and V in use) / seconds / bandwidth of a copy",
            inputs={"bytes": moved, "seconds": seconds, "bandwidth": limit},
        )  # fmt: skip

    def _bytes(self) -> int:
        """Bytes that a decode step must read: every matrix once, and the keys and values of what is in use."""
        model, config = self.engine.runner.model, self.engine.model_config
        weights = sum(p.nbytes for p in model.parameters())
        tied = config.tie_word_embeddings and self.engine.config.quantization is None
        if not tied:  # of the embedding only a few rows
            weights -= config.vocab_size * config.hidden_size * model.dtype.itemsize
        tokens = sum(len(r.token_ids) for r in self.engine.scheduler.running)
        return weights + tokens * config.kv_elements_per_token * model.dtype.itemsize

    def _add(self, input_tokens: int, output_tokens: int, sampling: dict[str, float]) -> None:
        from minillm.request import SamplingParams

        params = SamplingParams(max_tokens=output_tokens, ignore_eos=True, seed=0, **sampling)
        vocab = self.engine.model_config.vocab_size
        (request,) = self.engine.make_requests([self.random.randrange(vocab) for _ in range(input_tokens)], params)
        self.engine.add(request)

    def _step(self, tokens: int) -> float:
        """Seconds of a step that gives so many tokens. RuntimeError if it gave others: something else would be measured."""
        began = time.perf_counter()
        outputs = self.engine.step_text()
        seconds = time.perf_counter() - began
        if (given := sum(len(o.token_ids) for o in outputs)) != tokens:
            raise RuntimeError(f"a step gave {given} tokens, not {tokens}: nothing was measured")
        return seconds


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
