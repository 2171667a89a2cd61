import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from minillm.request import Request, SamplingParams
from minillm.sampling.pipeline import Sampler, candidates, top_k_mask, top_p_mask


def request(position: int = 1, **params) -> Request:
    p = SamplingParams(**params)
    return Request("r", [0] * position, 1, p, max_tokens=10, seed=p.seed or 0)


def oracle(logits, temperature, top_k, top_p, min_p):
    """The distribution transformers would sample from."""
    steps = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        steps.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        steps.append(TopPLogitsWarper(top_p))
    if min_p:
        steps.append(MinPLogitsWarper(min_p))
    return torch.softmax(steps(None, logits[None].clone()), -1)[0]


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([1, 2, 17, 300, 1000]),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 2, 40, 5000]),
    top_p=st.sampled_from([0.01, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_filters_agree_with_transformers(seed, size, temperature, top_k, top_p, min_p):
    logits = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3
    expected = oracle(logits, temperature, min(top_k, size), top_p, min_p)
    ids, probs = candidates(logits, SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p))
    got = torch.zeros(size)
    got[ids] = probs
    # at a cumulative mass within rounding of top_p, one token more or less is a matter of summation order
    assert ((got > 0) != (expected > 0)).sum() <= (1 if top_p < 1 else 0)
    if torch.equal(got > 0, expected > 0):
        torch.testing.assert_close(got, expected, atol=2e-6, rtol=1e-4)


def test_nucleus_wider_than_the_shortcut_is_found_whole():
    probs = torch.full((1000,), 1e-3)
    assert top_p_mask(probs, 0.9).sum() in (900, 901)
    assert top_p_mask(probs, 0.1).sum() in (100, 101)


def test_top_p_never_keeps_nothing_and_top_k_keeps_ties():
    assert top_p_mask(torch.tensor([0.9, 0.1]), 1e-9).tolist() == [True, False]
    assert top_k_mask(torch.tensor([1.0, 3.0, 3.0, 2.0]), 1).tolist() == [False, True, True, False]


def test_temperature_zero_is_exact_argmax_beside_random_rows():
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    rows = [request(temperature=0), request(temperature=1.0, seed=1), request(temperature=0), request(temperature=5.0, seed=2)]
    tokens = Sampler()(logits, rows)
    assert tokens[0] == logits[0].argmax() and tokens[2] == logits[2].argmax()
    assert tokens[1] == Sampler()(logits[1:2], rows[1:2])[0], "a row's draw must not depend on its batch-mates"
    assert tokens[3] == Sampler()(logits[3:4], rows[3:4])[0]


@pytest.mark.parametrize("temperature", [1e-40, 1e-5])
def test_a_tiny_temperature_neither_overflows_nor_leaves_the_best_token(temperature):
    logits = torch.tensor([1.0, 60.0, 3.0])
    assert Sampler()(logits[None], [request(temperature=temperature, seed=3)]) == [1]


def test_draws_follow_the_distribution():
    logits = torch.log(torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03]))
    n = 20_000
    tokens = Sampler()(logits.expand(n, -1), [request(position=i + 1, temperature=1.0, seed=11) for i in range(n)])
    observed = torch.bincount(torch.tensor(tokens), minlength=5).numpy()
    assert stats.chisquare(observed, logits.exp().numpy() * n).pvalue > 1e-3


def test_same_seed_and_position_give_the_same_draw_and_other_positions_other_draws():
    logits = torch.zeros(1, 1000)
    one = Sampler()(logits, [request(position=5, temperature=1.0, seed=9)])
    assert one == Sampler()(logits, [request(position=5, temperature=1.0, seed=9)])
    others = {Sampler()(logits, [request(position=p, temperature=1.0, seed=9)])[0] for p in range(1, 30)}
    assert len(others) > 20


def test_samples_of_one_prompt_differ():
    logits = torch.zeros(1, 1000)
    rows = [request(temperature=1.0, seed=9) for _ in range(10)]
    for i, row in enumerate(rows):
        row.index = i
    assert len({Sampler()(logits, [row])[0] for row in rows}) > 7
