"""Temperature, min-p, top-k and top-p against transformers' own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from minillm.request import SamplingParams
from minillm.sampling.filters import candidates, top_k_mask, top_p_floor, top_p_mask, weights_of


def distribution(logits, **params) -> torch.Tensor:
    """The probability of each token."""
    ids, weights = candidates(logits, SamplingParams(**params))
    probs = torch.zeros_like(logits)
    probs[slice(None) if ids is None else ids] = weights / weights.sum()
    return probs


def oracle(logits, temperature, top_k, top_p, min_p):
    """The distribution transformers samples from with its processors in vLLM's order."""
    steps = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if min_p:
        steps.append(MinPLogitsWarper(min_p))
    if top_k:
        steps.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        steps.append(TopPLogitsWarper(top_p))
    return torch.softmax(steps(None, logits[None].clone()), -1)[0]


@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([1, 2, 17, 300, 5000]),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 2, 40, 10_000]),
    top_p=st.sampled_from([0.01, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_filters_agree_with_transformers(seed, size, temperature, top_k, top_p, min_p):
    logits = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3
    before = logits.clone()
    expected = oracle(logits, temperature, min(top_k, size), top_p, min_p)
    got = distribution(logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assert torch.equal(logits, before), "the logits belong to the caller"
    # at a cumulative mass within rounding of top_p, one token more or less is a matter of summation order
    assert ((got > 0) != (expected > 0)).sum() <= (1 if top_p < 1 else 0)
    if torch.equal(got > 0, expected > 0):
        torch.testing.assert_close(got, expected, atol=2e-6, rtol=1e-4)


def test_min_p_comes_before_top_p():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    # min-p leaves 0.5 and 0.3, of which 0.5 is 62.5 %; with top-p first, 0.5 alone would be too little for 0.6 of all
    assert distribution(logits, top_p=0.6, min_p=0.4).tolist() == [1, 0, 0, 0]
    assert distribution(logits, top_p=0.6).count_nonzero() == 2


def test_ids_ascend_so_that_near_equal_tokens_cannot_swap():
    logits = torch.randn(2000, generator=torch.Generator().manual_seed(1)) * 2
    for params in ({"top_k": 100}, {"top_p": 0.9}, {"min_p": 0.01}, {"top_k": 100, "top_p": 0.9, "min_p": 0.01}):
        ids, _ = candidates(logits, SamplingParams(**params))
        assert 1 < len(ids) < 2000 and ids.diff().min() > 0
    assert candidates(logits, SamplingParams())[0] is None


def test_top_k_keeps_ties():
    assert top_k_mask(torch.tensor([1.0, 3.0, 3.0, 2.0]), 1).tolist() == [False, True, True, False]


def test_top_p_never_keeps_nothing_and_takes_the_first_of_equals():
    assert top_p_mask(torch.tensor([0.9, 0.1]), 1e-9, 1.0).tolist() == [True, False]
    assert top_p_mask(torch.full((4,), 0.25), 0.5, 1.0).tolist() == [True, True, False, False]
    kept = distribution(torch.zeros(5000), top_p=0.5).nonzero().flatten()
    assert kept[0] == 0 and kept[-1] == len(kept) - 1 and len(kept) in (2500, 2501)


@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.01, 1.0, 10.0, 100.0]), p=st.sampled_from([1e-9, 0.3, 0.95, 0.9999]))
def test_the_floor_of_top_p_lies_below_all_of_the_nucleus_and_above_nearly_all_else(seed, scale, p):
    weights = weights_of(torch.randn(3000, generator=torch.Generator().manual_seed(seed)) * scale, 1.0)
    floor, mass = top_p_floor(weights, p)
    mask = top_p_mask(weights, p, mass)
    torch.testing.assert_close(mass, weights.double().sum())
    assert floor <= weights[mask].min() <= floor * 1.01


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-5])
def test_a_tiny_temperature_leaves_the_best_token(temperature):
    assert distribution(torch.tensor([1.0, 60.0, 3.0]), temperature=temperature).tolist() == [0, 1, 0]


def test_a_huge_temperature_makes_all_possible_tokens_equal():
    logits = torch.tensor([1.0, 60.0, -torch.inf, 3.0])
    torch.testing.assert_close(distribution(logits, temperature=1e300), torch.tensor([1, 1, 0, 1]) / 3)


@pytest.mark.parametrize("params", [{}, {"top_k": 3}, {"top_p": 0.999}, {"min_p": 1e-6}], ids=str)
def test_an_impossible_token_stays_impossible(params):
    assert distribution(torch.tensor([0.0, -torch.inf, 1.0, -torch.inf]), **params)[[1, 3]].tolist() == [0, 0]
