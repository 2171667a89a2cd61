"""One engine's turn, in a process and an environment of its own: the standard library only, so that it runs in every engine's.

A runner is a script that hands `main` a function: load(job) -> (generate, version), where
generate(prompts, output_lens) continues every prompt greedily by exactly so many tokens and returns them.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

Tokens = list[list[int]]
Generate = Callable[[Tokens, list[int]], Tokens]
GB = 1e9


def main(load: Callable[[dict[str, Any]], tuple[Generate, str]]) -> None:
    """Job in on standard input, figures out on standard output, as shared.engines.run_json has it."""
    print(json.dumps(measure(load, json.load(sys.stdin))))


def measure(load: Callable[[dict[str, Any]], tuple[Generate, str]], job: dict[str, Any]) -> dict[str, Any]:
    """job: `single` and `mixed` workloads ({"prompts", "output_lens"}), and what `load` wants to know.

    Decode speed is what one request's answer takes beyond its first token, so that prefill has no part in it on either side.
    """
    started = time.perf_counter()
    generate, version = load(job)
    load_s = time.perf_counter() - started
    one, many = job["single"], job["mixed"]
    # What the first call of a shape pays for, later ones find ready. Other prompts than the measured ones: a prefix cache
    # must have nothing to reuse.
    for work in (one, many):
        timed(generate, [prompt[::-1] for prompt in work["prompts"]], [2] * len(work["prompts"]))
    first_token_s = median(timed(generate, one["prompts"], [1])[0] for _ in range(3))
    whole_s, _ = timed(generate, one["prompts"], one["output_lens"])
    if whole_s <= first_token_s:
        sys.exit("a whole answer took no longer than its first token: the machine is too busy to measure on")
    many_s, answers = timed(generate, many["prompts"], many["output_lens"])
    return {
        "load_s": load_s,
        "decode_tokens_per_s": (sum(one["output_lens"]) - 1) / (whole_s - first_token_s),
        "throughput_tokens_per_s": sum(many["output_lens"]) / many_s,
        "peak_memory_gb": peak_memory_bytes() / GB,
        "version": version,
        "first_tokens": [answer[0] for answer in answers],
    }


def timed(generate: Generate, prompts: Tokens, output_lens: list[int]) -> tuple[float, Tokens]:
    """Seconds and answers. Exits with an error if an answer is not as long as asked: the times would not compare."""
    started = time.perf_counter()
    answers = generate(prompts, output_lens)
    seconds = time.perf_counter() - started
    lengths = [len(answer) for answer in answers]
    if lengths != output_lens:
        sys.exit(f"asked for answers of {output_lens} tokens, got {lengths}")
    return seconds, answers


def peak_memory_bytes() -> int:
    """Most memory this process ever held, mapped files included where they were read."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux hands ru_maxrss on through fork and exec: it would be the parent's, if that was larger
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text()).group(1))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: bytes
