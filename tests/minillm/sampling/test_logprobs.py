"""What is reported of a choice: against torch.log_softmax and a plain count."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minillm.sampling.logprobs import top_logprobs
from minillm.sampling.pipeline import Sampler


@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    size=st.sampled_from([1, 5, 400]),
    count=st.sampled_from([0, 1, 5, 20]),
    ties=st.booleans(),
)
def test_values_order_and_ranks(seed, rows, size, count, ties):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, size, generator=generator) * 5
    logits = logits.round() if ties else logits
    tokens = torch.randint(0, size, (rows,), generator=generator).tolist()
    expected = logits.log_softmax(-1)
    for raw, row, token, entries in zip(logits, expected, tokens, top_logprobs(logits, tokens, count), strict=True):
        assert entries[0].token_id == token
        assert len({e.token_id for e in entries[1:]}) == len(entries) - 1 == min(count, size)
        for entry in entries:
            assert entry.logprob == pytest.approx(float(row[entry.token_id]), abs=2e-5)
            assert entry.rank == 1 + int((raw > raw[entry.token_id]).sum())
        assert [(e.rank, e.token_id) for e in entries[1:]] == sorted((e.rank, e.token_id) for e in entries[1:])


def test_logprobs_are_the_models_own_whatever_was_done_to_choose(make_request):
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    worst = int(logits[0].argmin())
    tokens = Sampler()(logits, [
        make_request(temperature=0, logit_bias={worst: 100.0}, logprobs=2),
        make_request(temperature=0.3, top_k=1, repetition_penalty=3.0, prompt=range(50), logprobs=0),
        make_request(temperature=0, output=[4], min_tokens=5, eos=[int(logits[2].argmax())], logprobs=1),
    ])  # fmt: skip
    assert torch.equal(logits, before)
    own = tokens[0].logprobs[0]
    assert (tokens[0].token_id, own.token_id, own.rank) == (worst, worst, 50)
    assert [e.rank for e in tokens[0].logprobs[1:]] == [1, 2] and len(tokens[1].logprobs) == 1
    assert tokens[2].logprobs[0].rank == 2 and tokens[2].logprobs[1].token_id == logits[2].argmax()
    for i, token in enumerate(tokens):
        assert token.logprobs[0].logprob == pytest.approx(float(logits[i].log_softmax(-1)[token.token_id]), abs=1e-5)


def test_only_those_who_ask_get_them_and_each_as_many_as_asked_for(make_request):
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    wishes = [None, 3, 0, 3]
    tokens = Sampler()(logits, [make_request(temperature=0, logprobs=n) for n in wishes])
    assert [t.logprobs and len(t.logprobs) for t in tokens] == [None, 4, 1, 4]
    for i in (1, 2, 3):
        (alone,) = Sampler()(logits[i : i + 1], [make_request(temperature=0, logprobs=wishes[i])])
        assert alone == tokens[i]


def test_the_greedy_token_is_the_first_of_equals_in_both_places(make_request):
    logits = torch.zeros(1, 64)
    logits[0, [9, 40]] = 1
    (token,) = Sampler()(logits, [make_request(temperature=0, logprobs=2)])
    assert [(e.token_id, e.rank) for e in token.logprobs] == [(9, 1), (9, 1), (40, 1)]
