"""logit_bias, min_tokens and the three penalties: transformers' processors where it has them, OpenAI's formula by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from minillm.sampling.penalties import changes_logits, process

TOKENS = st.lists(st.integers(0, 19), max_size=12)


def logits_of(seed: int, rows: int = 1, size: int = 20) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * 4


@pytest.fixture(scope="module")
def processed(make_request):
    def run(logits, **request):
        return process(logits[None], [make_request(**request)])[0]

    return run


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("penalty", [0.5, 1.3, 5.0])
def test_repetition_penalty_agrees_with_transformers(processed, seed, penalty):
    logits = logits_of(seed)
    tokens = torch.randint(0, 20, (9,), generator=torch.Generator().manual_seed(seed)).tolist()
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([tokens]), logits.clone())[0]
    # it makes no difference where the prompt ends
    torch.testing.assert_close(processed(logits[0], prompt=tokens[:4], output=tokens[4:], repetition_penalty=penalty), expected)
    torch.testing.assert_close(processed(logits[0], prompt=tokens, repetition_penalty=penalty), expected)


@pytest.mark.parametrize("seed", range(20))
def test_presence_and_frequency_count_the_answer_only(processed, seed):
    logits = logits_of(seed)[0]
    output = torch.randint(0, 20, (15,), generator=torch.Generator().manual_seed(seed)).tolist()
    presence, frequency = 0.7, -0.3
    expected = [
        logit - (presence if token in output else 0) - frequency * output.count(token)
        for token, logit in enumerate(logits.tolist())
    ]
    got = processed(logits, prompt=[1, 1, 2, 3], output=output, presence_penalty=presence, frequency_penalty=frequency)
    torch.testing.assert_close(got, torch.tensor(expected))
    assert torch.equal(processed(logits, prompt=[1, 1, 2, 3], presence_penalty=2, frequency_penalty=2), logits)


@pytest.mark.parametrize("seed", range(5))
def test_logit_bias_agrees_with_transformers(processed, seed):
    logits, bias = logits_of(seed), {3: -100.0, 7: 2.5, 19: 100.0}
    expected = SequenceBiasLogitsProcessor({(token,): value for token, value in bias.items()})(
        torch.tensor([[0]]), logits.clone()
    )
    torch.testing.assert_close(processed(logits[0], logit_bias=bias), expected[0])


def test_biases_of_one_token_add_up(processed):
    assert processed(torch.zeros(4), logit_bias=((2, 1.5), (2, 2.0))).tolist() == [0, 0, 3.5, 0]


@pytest.mark.parametrize("num_output", range(6))
def test_min_tokens_agrees_with_transformers(processed, num_output):
    logits, output = logits_of(1), [5] * num_output
    forbid = MinNewTokensLengthLogitsProcessor(2, 4, [7, 9])
    expected = forbid(torch.tensor([[1, 1, *output]]), logits.clone())[0]
    got = processed(logits[0], prompt=[1, 1], output=output, min_tokens=4, eos=[7], stop_token_ids=(9,))
    assert torch.equal(got, expected) and (got[7] == -torch.inf) == (num_output < 4)


def test_min_tokens_wins_over_a_bias_and_an_eos_outside_the_vocabulary_is_no_error(processed):
    assert processed(torch.zeros(4), eos=[1, 4, 99], min_tokens=1, logit_bias={1: 100}).tolist() == [0, -torch.inf, 0, 0]


def test_the_bias_comes_before_the_penalties_and_repetition_before_the_others(processed):
    got = processed(
        torch.tensor([1.0, 0.0]), prompt=[1], output=[0, 0],
        logit_bias={0: 2.0}, repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25,
    )  # fmt: skip
    assert got.tolist() == [(1 + 2) / 2 - 0.5 - 2 * 0.25, 0]


@given(seed=st.integers(0, 1000), prompts=st.lists(TOKENS.filter(bool), min_size=1, max_size=5), data=st.data())
def test_rows_are_changed_each_for_itself_and_never_in_place(make_request, seed, prompts, data):
    wishes = [{}, {"logit_bias": {4: 3.0}}, {"repetition_penalty": 1.5}, {"presence_penalty": 1.0, "frequency_penalty": 0.5},
              {"min_tokens": 3, "eos": [2]}]  # fmt: skip
    requests = [make_request(prompt=p, output=data.draw(TOKENS), **data.draw(st.sampled_from(wishes))) for p in prompts]
    logits = logits_of(seed, len(requests))
    before = logits.clone()
    together = process(logits, requests)
    assert torch.equal(logits, before)
    for i, request in enumerate(requests):
        assert torch.equal(together[i], process(logits[i : i + 1], [request])[0])
        assert changes_logits(request) or torch.equal(together[i], logits[i])


def test_nothing_asked_for_costs_no_copy(make_request):
    logits = logits_of(0, 2)
    assert (
        process(logits, [make_request(), make_request(output=[1, 2], min_tokens=2, logit_bias={}, stop_token_ids=(3,))]) is logits
    )
