"""Prompts from real conversations: a file in ShareGPT's format, under the rules of vLLM's benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from minillm.bench.datasets import Sample
from minillm.errors import ConfigError, RequestError

MIN_TOKENS = 4  # of the prompt, and of the reply unless its length is given
MAX_PROMPT_TOKENS = 1024
MAX_TOTAL_TOKENS = 2048  # prompt and answer


class ShareGPT:
    """A file such as [{"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}, …]}, …], read once.

    Of each conversation with two turns or more the first is the prompt, and the second says how long the answer shall be.
    """

    def __init__(self, path: str, tokenizer, output_len: int | None = None):
        """output_len: tokens of every answer, instead of the reply's. Raises ConfigError naming what is wrong with the file."""
        self._path, self._tokenizer, self._output_len = path, tokenizer, output_len
        self._turns = _read(path)

    def sample(self, n: int, rng: np.random.Generator) -> list[Sample]:
        """n of the conversations that are neither too short nor too long, shuffled; again from the start if there are fewer.

        Raises ConfigError if there is none."""
        samples: list[Sample] = []
        for i in rng.permutation(len(self._turns)):  # a large file has far more than n: only those looked at are tokenized
            if (sample := self._sample(*self._turns[i])) is not None:
                samples.append(sample)
            if len(samples) == n:
                break
        if not samples:
            raise ConfigError(
                f"--dataset-path {self._path}: no conversation has a prompt of {MIN_TOKENS} to {MAX_PROMPT_TOKENS} tokens "
                f"and at most {MAX_TOTAL_TOKENS} with its answer of at least {MIN_TOKENS}; use another file"
            )
        return [samples[i % len(samples)] for i in range(n)]

    def _sample(self, prompt: str, reply: str) -> Sample | None:
        try:
            prompt_tokens = len(self._tokenizer.encode(prompt))
            tokens = self._output_len or len(self._tokenizer.encode(reply))
        except RequestError:  # half a surrogate pair, cut off by whoever made the file: it could not be sent either
            return None
        long_enough = prompt_tokens >= MIN_TOKENS and (self._output_len is not None or tokens >= MIN_TOKENS)
        if long_enough and prompt_tokens <= MAX_PROMPT_TOKENS and prompt_tokens + tokens <= MAX_TOTAL_TOKENS:
            return Sample(prompt, tokens)
        return None


def _read(path: str) -> list[tuple[str, str]]:
    """The first two turns of each conversation that has them."""
    try:
        entries = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise ConfigError(f"--dataset-path {path}: cannot be read ({e})") from e
    if not isinstance(entries, list):
        raise ConfigError(f"--dataset-path {path}: ShareGPT's format is a JSON list of conversations")
    turns = [_first_two(entry, f"--dataset-path {path}: entry {i}") for i, entry in enumerate(entries)]
    if not any(turns):
        raise ConfigError(f"--dataset-path {path}: no conversation has two turns")
    return [two for two in turns if two is not None]


def _first_two(entry: Any, where: str) -> tuple[str, str] | None:
    conversation = entry.get("conversations") if isinstance(entry, dict) else None
    if not isinstance(conversation, list) or len(conversation) < 2:
        return None
    prompt, reply = (turn.get("value") if isinstance(turn, dict) else None for turn in conversation[:2])
    if not isinstance(prompt, str) or not isinstance(reply, str):
        raise ConfigError(f'{where}: each turn must be an object with its text as "value"')
    return prompt, reply
