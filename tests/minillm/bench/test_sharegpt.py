"""ShareGPT's files: vLLM's choice of conversations and lengths, and an error that names what is wrong."""

import json

import numpy as np
import pytest

from minillm.bench.datasets import Sample
from minillm.bench.serve import ServeOptions, workload
from minillm.bench.sharegpt import ShareGPT
from minillm.errors import ConfigError
from minillm.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_folder):
    return Tokenizer.from_folder(tiny_folder)  # a token a byte


@pytest.fixture
def file(tmp_path):
    """file([prompt, reply, ...], ...): the path of a file of such conversations."""

    def write(*conversations) -> str:
        entries = [{"id": str(i), "conversations": [{"from": "x", "value": v} for v in c]} for i, c in enumerate(conversations)]
        (tmp_path / "sharegpt.json").write_text(json.dumps(entries))
        return str(tmp_path / "sharegpt.json")

    return write


def sample(path, tokenizer, n, output_len=None, seed=0):
    return ShareGPT(path, tokenizer, output_len).sample(n, np.random.default_rng(seed))


def test_first_two_turns(file, tokenizer):
    path = file(["question", "the reply", "more", "and more"], ["alone"], [], ["other question", "ähm, no"])
    assert set(sample(path, tokenizer, 2)) == {Sample("question", 9), Sample("other question", 8)}


@pytest.mark.parametrize(
    "prompt, reply, is_kept",
    [
        (4, 4, True),
        (3, 50, False),
        (50, 3, False),
        (1024, 1024, True),
        (1025, 4, False),
        (1024, 1025, False),
        (4, 2044, True),
        (4, 2045, False),
    ],
)
def test_too_short_and_too_long_ones_are_left_out(file, tokenizer, prompt, reply, is_kept):
    path = file(["p" * prompt, "r" * reply], ["just right", "likewise"])
    expected = {Sample("just right", 8)} | ({Sample("p" * prompt, reply)} if is_kept else set())
    assert set(sample(path, tokenizer, 2)) == expected


def test_a_given_length_stands_for_the_reply_s(file, tokenizer):
    path = file(["p" * 1000, ""], ["q" * 1000, "r" * 3000], ["xyz", "too short a prompt all the same"])
    assert set(sample(path, tokenizer, 2, output_len=2)) == {Sample("p" * 1000, 2), Sample("q" * 1000, 2)}
    with pytest.raises(ConfigError, match="at most 2048"):
        sample(path, tokenizer, 2, output_len=1049)


def test_a_seed_repeats_the_choice(file, tokenizer):
    path = file(*([f"question {i}", f"reply {i}"] for i in range(50)))
    first = sample(path, tokenizer, 20, seed=1)
    assert first == sample(path, tokenizer, 20, seed=1) != sample(path, tokenizer, 20, seed=2)
    assert len({s.prompt for s in first}) == 20
    again = sample(path, tokenizer, 120, seed=1)
    assert again[:20] == first and again[50:100] == again[:50] and len({s.prompt for s in again}) == 50


def test_what_cannot_be_sent_is_left_out(file, tokenizer):
    assert sample(file(["cut off \ud83d", "reply"], ["whole", "reply"]), tokenizer, 1) == [Sample("whole", 5)]


@pytest.mark.parametrize(
    "content, fault",
    [
        ("", "cannot be read"),
        ("{}", "JSON list"),
        ("[]", "no conversation has two turns"),
        ('[{"conversations": [{"value": "one"}]}, 5]', "no conversation has two turns"),
        ('[{}, {"conversations": [{"value": "one"}, {"text": "two"}]}]', "entry 1"),
        ('[{"conversations": ["one", "two"]}]', "entry 0"),
        ('[{"conversations": [{"value": "a"}, {"value": "b"}]}]', "no conversation has a prompt"),
    ],
)
def test_a_bad_file_is_named(tmp_path, tokenizer, content, fault):
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=fault):
        sample(str(path), tokenizer, 1)
    with pytest.raises(ConfigError, match="cannot be read"):
        sample(str(tmp_path / "none"), tokenizer, 1)


def test_a_workload_of_it(file, tokenizer):
    path = file(*([f"question {i}", f"reply {i}"] for i in range(50)))
    options = ServeOptions(dataset_name="sharegpt", dataset_path=path, num_prompts=30, num_warmups=3, output_len=5)
    load, warmups, arrivals = workload(options, tokenizer)
    assert (len(load), len(warmups), len(arrivals)) == (30, 3, 30)
    assert {s.output_tokens for s in load} == {5}
    with pytest.raises(ConfigError, match="--tokenizer"):
        workload(options, None)
