"""Which numbers in prose are claims. A rule that shouts at every number gets switched off; one that misses some is no rule."""

import pytest
from notebook_kit.cells import slug
from notebook_kit.prose import bare_numbers

CLAIMS = [
    "it takes 20 ms",
    "3.065 s in all",
    "16.06 GB of weights",
    "24GiB",
    "2,304 B each",
    "131,072 bytes",
    "165.2 TFLOP/s",
    "1 FLOP/byte",
    "62.8 tok/s",
    "3,000 tokens/s",
    "12 requests per second",
    "1,008 GB/s",
    r"costs \$20",
    "costs $0.35",
    "2 dollars",
    "5× faster",
    "2.8 × the bytes",
    "1.5x faster",
    "a 30-second run",
    "30 days",
    "**450 s**",
    "(0.62 s)",
    "between 39 and 51 µs",
    "**2** [3 MB](other.md)",
]
NO_CLAIMS = [
    "`20 ms`",
    "``a ` 20 ms``",
    "$T = 20\\ \\text{ms}$ and $2 \\cdot 4$ GB",
    "$$ B^* = 0.86\\ \\text{GB/s} $$",
    "```\n20 ms\n```",
    "[20 ms](evidence:nap)",
    "[20.1 ms](evidence:nap:.1f) and [2×](evidence:nap.ratio)",
    "a 24 GB card, one 24 GB RTX 4090, an 80 GB H100",
    "Llama-3.1-8B, 8B and 70B",
    "4,096 tokens, 16 requests, 4-bit, 96 %",
    "64 × 128 matrices",
    "2 × `hidden`",
    "in 2023",
    "INT4 and FP8",
    "version 3.x",
    "37 B active parameters",
    "[paper](https://x.org/20ms/5x) 2.",
    "<!-- 20 ms -->",
    "<!-- arithmetic --> 2 GB + 2 GB = 4 GB",
    "<!-- arithmetic -->\n\n| 2 GB |\n| --- |\n| 3 GB |",
]


@pytest.mark.parametrize("text", CLAIMS)
def test_a_claim_is_found(text):
    assert len(bare_numbers(text)) == 1


@pytest.mark.parametrize("text", NO_CLAIMS)
def test_what_is_no_claim_passes(text):
    assert bare_numbers(text) == []


def test_the_mark_covers_one_block_only():
    assert bare_numbers("<!-- arithmetic --> 2 GB\n\n3 GB") == ["3 GB"]
    assert bare_numbers("<!-- arithmetic -->\n\n2 GB\n\n3 GB") == ["3 GB"]


def test_code_that_is_not_closed_hides_nothing_else():
    assert bare_numbers("a ` tick, 20 ms") == ["20 ms"]
    assert bare_numbers("$5 a month and $7 more") == ["$5", "$7"]


def test_anchors_are_those_of_the_site():
    assert slug("What this does not show") == "what-this-does-not-show"
    assert slug("KV `cache`: 2.3 · bộ nhớ đệm") == "kv-cache-23--bộ-nhớ-đệm"
