"""Prompts: of the length asked for, different from one another, the same for the same seed."""

import json

import numpy as np
import pytest

from minillm.bench.datasets import custom_samples, random_samples
from minillm.errors import ConfigError
from minillm.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_folder):
    return Tokenizer.from_folder(tiny_folder)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_random_prompts_have_the_asked_length(tokenizer):
    samples = random_samples(20, 50, 8, rng(), tokenizer=tokenizer)
    assert {len(tokenizer.encode(s.prompt)) for s in samples} == {50}
    assert {s.output_tokens for s in samples} == {8}
    assert len({s.prompt[:16] for s in samples}) == 20


def test_without_a_tokenizer_a_word_is_a_token():
    assert {len(s.prompt.split()) for s in random_samples(5, 30, 8, rng(), prefix_len=10)} == {40}


def test_lengths_vary_by_the_ratio(tokenizer):
    samples = random_samples(300, 40, 100, rng(), range_ratio=0.25, tokenizer=tokenizer)
    lengths = [len(tokenizer.encode(s.prompt)) for s in samples]
    assert (min(lengths), max(lengths)) == (30, 50)
    assert 75 <= min(s.output_tokens for s in samples) < 85 < 115 < max(s.output_tokens for s in samples) <= 125


def test_the_prefix_is_shared_and_nothing_more(tokenizer):
    tokens = [tokenizer.encode(s.prompt) for s in random_samples(10, 40, 1, rng(), prefix_len=32, tokenizer=tokenizer)]
    assert {len(t) for t in tokens} == {72}
    assert len({tuple(t[:32]) for t in tokens}) == 1
    assert len({tuple(t[:48]) for t in tokens}) == 10


def test_a_seed_repeats_the_prompts():
    assert random_samples(4, 9, 2, rng(3)) == random_samples(4, 9, 2, rng(3)) != random_samples(4, 9, 2, rng(4))


def test_custom_prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [{"prompt": "ä"}, {"prompt": "b", "output_tokens": 5}]) + "\n")
    assert {(s.prompt, s.output_tokens) for s in custom_samples(str(path), 2, None, rng())} == {("ä", 256), ("b", 5)}
    again = custom_samples(str(path), 5, 7, rng())
    assert [s.prompt for s in again[:2]] == [s.prompt for s in again[2:4]] and {s.output_tokens for s in again} == {7}


@pytest.mark.parametrize(
    "content, fault",
    [
        ("", "empty"),
        ('{"prompt": "a"}\n{"text": "b"}', "line 2"),
        ("hello", "line 1"),
        ("[1]", "line 1"),
        ('{"prompt": ""}', "not empty"),
        ('{"prompt": "a", "output_tokens": 0}', "at least 1"),
        ('{"prompt": "a", "output_tokens": true}', "whole number"),
    ],
)
def test_a_bad_file_names_its_line(tmp_path, content, fault):
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match=fault):
        custom_samples(str(path), 1, None, rng())
    with pytest.raises(ConfigError, match="cannot be read"):
        custom_samples(str(tmp_path / "none"), 1, None, rng())
