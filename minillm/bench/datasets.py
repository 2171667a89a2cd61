"""What is asked: random prompts of given lengths, or a file of the user's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minillm.errors import ConfigError

# Short and common, so that most tokenizers have one token for each with the space before it
WORDS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work night point home water room mother area money story fact month lot
right study book eye job word business issue side kind head house service friend father power hour game line end law car
city name team minute idea body back parent face level office door health person art war history party result
"""


@dataclass(frozen=True)
class Sample:
    """One request: a prompt, and how many tokens of answer to ask for."""

    prompt: str
    output_tokens: int


def random_lengths(n: int, length: int, range_ratio: float, rng: np.random.Generator) -> list[int]:
    """n lengths, uniform from length * (1 - range_ratio) to length * (1 + range_ratio), at least 1."""
    low, high = int(length * (1 - range_ratio)), int(length * (1 + range_ratio))
    return [max(1, int(v)) for v in rng.integers(low, high, size=n, endpoint=True)]


def random_samples(
    n: int,
    input_len: int,
    output_len: int,
    rng: np.random.Generator,
    range_ratio: float = 0.0,
    prefix_len: int = 0,
    tokenizer=None,
) -> list[Sample]:
    """Prompts of random words, prefix_len + input_len tokens long, of which all share the first prefix_len.

    Lengths are in tokens of `tokenizer`, those that it puts in front included. Without one a word counts as a token; either
    way the numbers reported are the server's own, from its usage.
    """
    prefix = _fit(_words(prefix_len, rng), prefix_len, tokenizer)
    inputs = random_lengths(n, input_len, range_ratio, rng)
    outputs = random_lengths(n, output_len, range_ratio, rng)
    prompts = [_fit(f"{prefix} {_words(length, rng)}".strip(), prefix_len + length, tokenizer) for length in inputs]
    return [Sample(prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]


def _words(n: int, rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS.split(), size=n))


def _fit(text: str, length: int, tokenizer) -> str:
    """The first `length` tokens of the text: every word is at least one."""
    return text if tokenizer is None else tokenizer.decode(tokenizer.encode(text)[:length])


def custom_samples(path: str, n: int, output_len: int | None, rng: np.random.Generator) -> list[Sample]:
    """n prompts from a file of JSON lines, shuffled; taken again from the start if the file has fewer.

    A line is {"prompt": text} and may say its own "output_tokens"; output_len, if given, overrules it; else 256.
    Raises ConfigError naming the line at fault.
    """
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"--dataset-path {path}: cannot be read ({e})") from e
    samples = [_sample(line, f"{path} line {i}", output_len) for i, line in enumerate(lines, 1) if line.strip()]
    if not samples:
        raise ConfigError(f'--dataset-path {path}: the file is empty; give one JSON object a line: {{"prompt": "..."}}')
    order = rng.permutation(len(samples))
    return [samples[order[i % len(samples)]] for i in range(n)]


def _sample(line: str, where: str, output_len: int | None) -> Sample:
    try:
        row = json.loads(line)
        prompt, tokens = row["prompt"], row.get("output_tokens", 256) if output_len is None else output_len
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigError(f'{where}: each line must be a JSON object such as {{"prompt": "..."}}') from e
    if not isinstance(prompt, str) or not prompt or type(tokens) is not int or tokens < 1:
        raise ConfigError(f"{where}: prompt must be text, not empty, and output_tokens a whole number of at least 1")
    return Sample(prompt, tokens)
