import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from minillm.sampling.pipeline import Sampler, argmax


def sample(logits, requests) -> list[int]:
    return [token.token_id for token in Sampler()(logits, requests)]


@given(rows=st.integers(0, 5), size=st.sampled_from([1, 63, 64, 128, 300, 640]), seed=st.integers(0, 1000), ties=st.booleans())
def test_argmax_is_the_first_of_the_largest(rows, size, seed, ties):
    logits = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    logits = logits.round() if ties else logits
    assert argmax(logits).tolist() == [row.index(max(row)) for row in logits.tolist()]


def test_temperature_zero_is_exact_argmax_beside_random_rows(make_request):
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    rows = [make_request(temperature=t, seed=s) for t, s in ((0, 0), (1.0, 1), (0, 0), (5.0, 2))]
    tokens = sample(logits, rows)
    assert tokens[0] == logits[0].argmax() and tokens[2] == logits[2].argmax()
    assert tokens[1] == sample(logits[1:2], rows[1:2])[0], "a row's draw must not depend on its batch-mates"
    assert tokens[3] == sample(logits[3:4], rows[3:4])[0]


@pytest.mark.parametrize("filters", [{}, {"top_k": 1}, {"top_p": 0.5}, {"min_p": 0.1}], ids=str)
def test_temperature_zero_takes_the_best_after_bias_and_penalties(make_request, filters):
    logits = torch.tensor([[0.0, 5.0, 4.0, 3.0]])
    for wish, best in (
        ({}, 1),
        ({"logit_bias": {3: 10.0}}, 3),
        ({"repetition_penalty": 2.0, "prompt": [1]}, 2),
        ({"presence_penalty": 1.5, "output": [1]}, 2),
        ({"frequency_penalty": 1.2, "output": [1, 1, 2]}, 3),
        ({"min_tokens": 2, "eos": [1], "stop_token_ids": (2,), "output": [0]}, 3),
    ):
        assert sample(logits, [make_request(temperature=0, **filters, **wish)]) == [best], wish


DISTRIBUTION = torch.tensor([0.45, 0.25, 0.15, 0.07, 0.05, 0.03])


@pytest.mark.parametrize("wish, expected", [
    ({}, [0.45, 0.25, 0.15, 0.07, 0.05, 0.03]),
    ({"temperature": 0.5}, [0.45**2, 0.25**2, 0.15**2, 0.07**2, 0.05**2, 0.03**2]),
    ({"top_k": 3}, [0.45, 0.25, 0.15, 0, 0, 0]),
    ({"top_p": 0.8}, [0.45, 0.25, 0.15, 0, 0, 0]),
    ({"min_p": 0.2}, [0.45, 0.25, 0.15, 0, 0, 0]),
    ({"logit_bias": {5: 2.0, 0: -100.0}}, [0, 0.25, 0.15, 0.07, 0.05, 0.03 * 7.389056]),
    ({"presence_penalty": 1.0, "frequency_penalty": 0.5, "output": [0, 0, 1]},
     [0.45 * 0.1353353, 0.25 * 0.2231302, 0.15, 0.07, 0.05, 0.03]),
    ({"repetition_penalty": 2.0}, [0.45**2, 0.25, 0.15, 0.07, 0.05, 0.03]),  # the prompt is token 0; its logit is negative
    ({"min_tokens": 9, "eos": [0], "top_k": 2}, [0, 0.25, 0.15, 0, 0, 0]),
], ids=str)  # fmt: skip
def test_draws_follow_the_distribution(make_request, wish, expected):
    n = 3000
    requests = [make_request(**{"seed": seed, **wish}) for seed in range(n)]
    check_frequencies(sample(DISTRIBUTION.log().expand(n, -1), requests), expected)


def test_draws_over_positions_of_one_request_follow_the_distribution(make_request):
    n = 5000
    requests = [make_request(prompt=[0] * (i + 1), seed=11) for i in range(n)]
    check_frequencies(sample(DISTRIBUTION.log().expand(n, -1), requests), DISTRIBUTION.tolist())


def check_frequencies(tokens, expected):
    """expected: in proportion."""
    expected = torch.tensor(expected, dtype=torch.float64)
    observed = torch.bincount(torch.tensor(tokens), minlength=len(expected)).double()
    possible = expected > 0
    assert observed[~possible].sum() == 0
    expected *= len(tokens) / expected.sum()
    assert stats.chisquare(observed[possible].numpy(), expected[possible].numpy()).pvalue > 1e-3


WISHES = [{"temperature": 0}, {}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_p": 0.9, "logit_bias": {7: 3.0}},
          {"temperature": 0, "repetition_penalty": 1.4}, {"temperature": 2.0, "presence_penalty": 1.0}]  # fmt: skip


@given(data=st.data(), seed=st.integers(0, 1000))
def test_a_row_gets_the_same_token_alone_and_in_any_batch_and_order(make_request, data, seed):
    wishes = data.draw(st.lists(st.sampled_from(WISHES), min_size=1, max_size=8))
    logits = torch.randn(len(wishes), 640, generator=torch.Generator().manual_seed(seed)) * 2
    requests = [
        make_request(prompt=range(1 + i), output=range(seed % 7), index=i % 3, seed=seed, **w) for i, w in enumerate(wishes)
    ]
    alone = [sample(logits[i : i + 1], [request])[0] for i, request in enumerate(requests)]
    order = data.draw(st.permutations(range(len(requests))))
    assert sample(logits[order], [requests[i] for i in order]) == [alone[i] for i in order]


def test_other_positions_seeds_and_samples_draw_other_numbers(make_request):
    logits = torch.zeros(1, 1000)
    assert sample(logits, [make_request(prompt=[0] * 5, seed=9)]) == sample(logits, [make_request(prompt=[0] * 5, seed=9)])
    for vary in (
        [{"prompt": [0] * n} for n in range(1, 30)],
        [{"seed": s} for s in range(30)],
        [{"index": i} for i in range(30)],
    ):
        assert len({sample(logits, [make_request(**{"seed": 9, **v})])[0] for v in vary}) > 20


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}], ids=str)
def test_a_row_the_model_overflowed_in_does_not_touch_the_others(make_request, broken, filters):
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    requests = [make_request(seed=i, **filters) for i in range(3)]
    whole = sample(logits, requests)
    logits[1, 7] = broken
    tokens = sample(logits, requests)
    assert tokens[::2] == whole[::2] and 0 <= tokens[1] < 50


def test_no_rows_give_no_tokens():
    assert Sampler()(torch.empty(0, 640), []) == []
