"""Checks for a sampler (minillm.sampling.pipeline). subject: its class, called without arguments."""

from __future__ import annotations

import torch
from torch import Tensor

from minillm.request import Request, SamplingParams

DRAWS = 3000


def _request(seed: int = 0, position: int = 1, index: int = 0, **params) -> Request:
    """One whose next token stands at `position`."""
    return Request(f"r{seed}", [0] * position, 1, SamplingParams(seed=seed, **params), max_tokens=99, seed=seed, index=index)


def _tokens(subject, logits: Tensor, requests: list[Request]) -> list[int]:
    return [token.token_id for token in subject()(logits.clone(), requests)]


def _frequencies(subject, logits: Tensor, **params) -> Tensor:
    """How often each token is drawn, as a share, over DRAWS requests that differ in their seed alone."""
    drawn = _tokens(subject, logits.expand(DRAWS, -1), [_request(seed, **params) for seed in range(DRAWS)])
    return torch.bincount(torch.tensor(drawn), minlength=len(logits)) / DRAWS


def _check_distribution(subject, logits: Tensor, expected: Tensor, **params) -> None:
    """Outside `expected`'s support nothing is drawn; inside, shares are within five standard deviations."""
    got = _frequencies(subject, logits, **params)
    assert (got[expected == 0] == 0).all(), (
        f"{params}: drew {torch.nonzero(got * (expected == 0)).flatten().tolist()}, which are cut"
    )
    limit = 5 * (expected * (1 - expected) / DRAWS).sqrt() + 1e-9
    assert ((got - expected).abs() <= limit).all(), f"{params}: shares {got.tolist()}, expected {expected.tolist()}"


LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, 1.5, -3.0])


def check_temperature_zero_is_argmax(subject):
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(0))
    requests = [_request(seed, temperature=0, top_k=3, top_p=0.5) for seed in range(50)]
    assert _tokens(subject, logits, requests) == logits.argmax(-1).tolist()


def check_a_row_does_not_depend_on_the_others(subject):
    """Greedy and random rows mixed, in two orders, and each alone."""
    logits = torch.randn(12, 40, generator=torch.Generator().manual_seed(1))
    kinds = [{"temperature": 0}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 5}, {"temperature": 1.3, "top_p": 0.8}]
    requests = [_request(seed, **kinds[seed % 4]) for seed in range(12)]
    together = _tokens(subject, logits, requests)
    backwards = _tokens(subject, logits.flip(0), requests[::-1])[::-1]
    alone = [_tokens(subject, logits[i : i + 1], [requests[i]])[0] for i in range(12)]
    assert together == alone == backwards, f"together {together}, backwards {backwards}, alone {alone}"


def check_a_draw_is_keyed_by_seed_position_and_index(subject):
    logits = torch.zeros(1, 1000)
    base = _tokens(subject, logits, [_request(7, 5, 1, temperature=1.0)])
    assert _tokens(subject, logits, [_request(7, 5, 1, temperature=1.0)]) == base, "one key, drawn twice, gave two tokens"
    for key in ((8, 5, 1), (7, 6, 1), (7, 5, 2)):
        other = _tokens(subject, logits, [_request(*key, temperature=1.0)])
        assert other != base, f"(seed, position, index) {key} draws what (7, 5, 1) draws, of 1000 equal tokens"


def check_the_distribution_is_softmax_over_temperature(subject):
    for temperature in (1.0, 0.5, 2.0):
        _check_distribution(subject, LOGITS, torch.softmax(LOGITS / temperature, 0), temperature=temperature)


def check_top_k_keeps_the_k_likeliest(subject):
    kept = LOGITS.clone()
    kept[LOGITS < 1.0] = -torch.inf  # the three likeliest stay
    _check_distribution(subject, LOGITS, torch.softmax(kept, 0), temperature=1.0, top_k=3)


def check_top_p_keeps_the_token_that_passes_the_mass(subject):
    """Sorted: 0.39, 0.24, 0.14, … The first two hold 0.63, so 0.7 takes the third, with which the mass is reached."""
    kept = LOGITS.clone()
    kept[LOGITS < 1.0] = -torch.inf
    _check_distribution(subject, LOGITS, torch.softmax(kept, 0), temperature=1.0, top_p=0.7)


def check_min_p_is_a_share_of_the_likeliest(subject):
    kept = LOGITS.clone()
    kept[LOGITS < 2.0 + torch.log(torch.tensor(0.2))] = -torch.inf
    _check_distribution(subject, LOGITS, torch.softmax(kept, 0), temperature=1.0, min_p=0.2)


def check_the_narrowest_filters_leave_the_likeliest_token(subject):
    logits = torch.randn(20, 60, generator=torch.Generator().manual_seed(2))
    for params in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}):
        got = _tokens(subject, logits, [_request(seed, temperature=1.0, **params) for seed in range(20)])
        assert got == logits.argmax(-1).tolist(), f"{params} drew {got}, argmax is {logits.argmax(-1).tolist()}"


def check_extreme_values_draw_a_token(subject):
    for scale, temperature in ((1e4, 1.0), (1.0, 1e-6), (1e-6, 1.0), (1.0, 1e4)):
        logits = LOGITS[None] * scale
        (token,) = _tokens(subject, logits, [_request(temperature=temperature)])
        assert 0 <= token < len(LOGITS), f"logits of size {scale} at temperature {temperature} gave token {token}"
    one_left = torch.full((1, 9), -torch.inf)
    one_left[0, 4] = 0.0
    assert _tokens(subject, one_left, [_request(temperature=1.0, top_p=0.9)]) == [4]


def check_an_empty_batch_gives_nothing(subject):
    assert _tokens(subject, torch.zeros(0, 9), []) == [], "a step of prompt chunks alone yields no logits"
