"""`minillm bench throughput` and `latency`: the engine alone, without a server. JSON fields are vLLM's, and a spread."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from minillm.bench.datasets import random_lengths
from minillm.errors import ConfigError
from minillm.llm import LLM
from minillm.request import SamplingParams

LATENCY_PERCENTILES = (10, 25, 50, 75, 90, 99)

Prompts = list[list[int]]


def random_prompts(llm: LLM, lengths: list[int], rng: np.random.Generator) -> Prompts:
    """Random token ids, special ones left out. Fresh ones for each run: a repeated prompt is in the prefix cache."""
    special = llm.tokenizer.special_ids
    ordinary = np.array([i for i in range(min(llm.tokenizer.vocab_size, llm.engine.model_config.vocab_size)) if i not in special])
    return [rng.choice(ordinary, size=length).tolist() for length in lengths]


def throughput(
    llm: LLM,
    num_prompts: int,
    input_len: int,
    output_len: int,
    range_ratio: float = 0.0,
    num_warmups: int = 1,
    num_repeats: int = 3,
    seed: int = 0,
    on_done: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Everything there at the start, as fast as it goes. The single numbers are the median run's; the lists hold all runs.

    Every run has the same lengths and other tokens."""
    rng = np.random.default_rng(seed)
    inputs = random_lengths(num_prompts, input_len, range_ratio, rng)
    outputs = random_lengths(num_prompts, output_len, range_ratio, rng)
    params = [SamplingParams(max_tokens=n, ignore_eos=True, seed=seed) for n in outputs]
    times = _timed_runs(lambda: _generate(llm, random_prompts(llm, inputs, rng), params), num_warmups, num_repeats, on_done)
    total, elapsed = sum(inputs) + sum(outputs), median(times)
    return {
        "elapsed_time": elapsed,
        "num_requests": num_prompts,
        "total_num_tokens": total,
        "requests_per_second": num_prompts / elapsed,
        "tokens_per_second": total / elapsed,  # input and output together, as in vLLM
        "total_output_tokens": sum(outputs),
        "output_tokens_per_second": sum(outputs) / elapsed,
        "elapsed_times": times,
        "output_tokens_per_second_spread": [sum(outputs) / max(times), sum(outputs) / min(times)],
    }


def latency(
    llm: LLM,
    batch_size: int,
    input_len: int,
    output_len: int,
    num_warmups: int = 10,
    num_repeats: int = 30,
    seed: int = 0,
    on_done: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Seconds that one batch of equal requests takes from start to end, again and again."""
    rng = np.random.default_rng(seed)
    params = [SamplingParams(max_tokens=output_len, ignore_eos=True, seed=seed)] * batch_size
    lengths = [input_len] * batch_size
    times = _timed_runs(lambda: _generate(llm, random_prompts(llm, lengths, rng), params), num_warmups, num_repeats, on_done)
    return {
        "avg_latency": float(np.mean(times)),
        "latencies": times,
        "percentiles": {str(q): float(np.percentile(times, q)) for q in LATENCY_PERCENTILES},
    }


def _generate(llm: LLM, prompts: Prompts, params: list[SamplingParams]) -> float:
    """Seconds from the first prompt to the last token."""
    began = time.perf_counter()
    answers = llm.generate(prompts, params)
    elapsed = time.perf_counter() - began
    for answer, asked in zip(answers, params, strict=True):
        if len(answer.outputs[0].token_ids) != asked.max_tokens:
            raise ConfigError(
                f"asked for {asked.max_tokens} tokens, got {len(answer.outputs[0].token_ids)}: the time means nothing"
            )
    return elapsed


def _timed_runs(run: Callable[[], float], num_warmups: int, num_repeats: int, on_done: Callable[[], None]) -> list[float]:
    for _ in range(num_warmups):
        run()
        on_done()
    times = []
    for _ in range(num_repeats):
        times.append(run())
        on_done()
    return times


def save(result: dict[str, Any], path: str) -> None:
    """Raises ConfigError if the file cannot be written."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(result, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as e:
        raise ConfigError(f"--output-json {path}: cannot be written ({e.strerror or e})") from e
