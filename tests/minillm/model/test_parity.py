"""Logits of every supported architecture against transformers, however the tokens are cut into steps."""

import random

import pytest
import torch

from minillm.attention import BACKENDS

TOLERANCE = 1e-4
LENGTHS = [19, 1, 40, 7]  # one token; longer than the sliding window and than Llama 3's original context


@pytest.fixture
def sequences():
    rng = random.Random(0)
    return [[rng.randrange(101) for _ in range(n)] for n in LENGTHS]


def assert_close(got, want, tolerance=TOLERANCE):
    torch.testing.assert_close(got, want, atol=tolerance, rtol=0)


@pytest.mark.parametrize("attention", list(BACKENDS))
def test_whole_prompts(oracle, layout, harness, sequences, attention):
    logits = harness(oracle.decoder(attention), layout(len(sequences), 40), sequences).whole()
    for tokens, got in zip(sequences, logits, strict=True):
        assert got.dtype == torch.float32
        assert_close(got, oracle.logits(tokens))


@pytest.mark.parametrize("attention", list(BACKENDS))
def test_chunks_and_decodes(oracle, layout, harness, sequences, attention):
    """Each sequence: some chunks of 1 to 9 tokens, then decodes; not every sequence takes part in every step."""
    run = harness(oracle.decoder(attention), layout(len(sequences), 40), sequences)
    rng, pieces = random.Random(1), [[] for _ in sequences]
    while any(len(tokens) > done for tokens, done in zip(sequences, run.computed, strict=True)):
        sizes = {}
        for seq, tokens in enumerate(sequences):
            done = run.computed[seq]
            size = min(rng.randint(1, 9) if done < len(tokens) * 2 // 3 else 1, len(tokens) - done)
            if size and rng.random() < 0.8:
                sizes[seq] = size
        if sizes:
            for seq, logits in run.step(sizes).items():
                pieces[seq].append(logits)
    for tokens, parts in zip(sequences, pieces, strict=True):
        assert_close(torch.cat(parts), oracle.logits(tokens))


@pytest.mark.parametrize("attention", list(BACKENDS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.06), (torch.float16, 0.008)])
def test_half_precision_is_close(oracle, layout, harness, sequences, attention, dtype, tolerance):
    """Root mean square error of the logits, relative to their own size. fp16 keeps 3 more bits than bf16."""
    logits = harness(oracle.decoder(attention, dtype), layout(len(sequences), 40), sequences).whole()
    for tokens, got in zip(sequences, logits, strict=True):
        want = oracle.logits(tokens)
        assert got.dtype == torch.float32
        assert (got - want).square().mean().sqrt() < tolerance * want.square().mean().sqrt()


def test_the_window_matters_here(oracles, sequences):
    """Guards the test above: with the prompt this long, a window of 6 and none differ."""
    windowed = oracles["mistral-window"]
    assert windowed.config.sliding_window == 6 and oracles["mistral"].config.sliding_window is None
    far = windowed.logits(sequences[2])
    changed = windowed.logits([(sequences[2][0] + 1) % 101, *sequences[2][1:]])
    reach = 3 * (6 - 1)  # layers times how far back each looks
    assert not torch.equal(far[reach], changed[reach])
    assert torch.equal(far[reach + 1 :], changed[reach + 1 :])
