"""The work every engine is given: fixed token ids, so that tokenizers and stop tokens play no part."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """prompts[i] is to be continued by exactly output_lens[i] tokens."""

    name: str
    prompts: list[list[int]]
    output_lens: list[int]

    @property
    def num_input_tokens(self) -> int:
        return sum(map(len, self.prompts))

    @property
    def num_output_tokens(self) -> int:
        return sum(self.output_lens)


def single(input_len: int = 128, output_len: int = 128, seed: int = 0) -> Workload:
    """One request: its decode speed is what a lone user sees."""
    return Workload("single", [_prompt(random.Random(seed), input_len)], [output_len])


def mixed(num_requests: int = 16, shortest: int = 32, longest: int = 256, seed: int = 1) -> Workload:
    """Requests of very different lengths, in and out, all there at the start."""
    rng = random.Random(seed)
    step = (longest - shortest) / (num_requests - 1)
    lengths = [round(shortest + i * step) for i in range(num_requests)]
    outputs = lengths.copy()
    rng.shuffle(lengths)
    rng.shuffle(outputs)
    return Workload("mixed", [_prompt(rng, n) for n in lengths], outputs)


def _prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(1000, 40000) for _ in range(length)]  # ordinary tokens of SmolLM2's vocabulary
