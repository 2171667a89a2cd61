import pytest

from shared.cost import bot_cost, cost_per_million, request_cost

R1 = {"input_price": 0.55, "cached_price": 0.14, "output_price": 2.19}  # DeepSeek R1, February 2025


def bot(prefix, **more):
    """A thousand requests of 3,000 tokens of instructions and 200 of question, 300 of answer."""
    return bot_cost(1000, 3200, prefix, 300, **R1 | more)


def test_cost_per_million():
    assert cost_per_million(3.6, 1000) == pytest.approx(1.0)
    assert cost_per_million(2.0, 62.8) == pytest.approx(8.846, abs=0.001)
    for nonsense in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(ValueError, match="above zero"):
            cost_per_million(*nonsense)


def test_the_bill_halves_when_the_instructions_move_to_the_front():
    assert bot(0) == pytest.approx(2.417)
    assert bot(3000) == pytest.approx(1.187)
    assert 1 - bot(3000) / bot(0) == pytest.approx(0.509, abs=0.0005)
    assert bot(2944) == pytest.approx(1.210, abs=0.0005)  # whole units of 64 tokens


@pytest.mark.parametrize("reasoning, saving", [(0, 0.509), (500, 0.350), (1000, 0.267), (2000, 0.181), (5000, 0.092)])
def test_reasoning_tokens_eat_the_saving(reasoning, saving):
    with_cache, without = bot(3000, reasoning_tokens=reasoning), bot(0, reasoning_tokens=reasoning)
    assert 1 - with_cache / without == pytest.approx(saving, abs=0.0005)


def test_not_every_request_finds_the_prefix():
    assert bot(3000, hit_rate=0.563) == pytest.approx(1.725, abs=0.0005)
    assert bot(3000, hit_rate=0) == pytest.approx(bot(0))


def test_deepseeks_published_day():
    """608e9 tokens in, 342e9 of them cached, 168e9 out: the page says $562,027."""
    assert request_cost(608e9, 342e9, 168e9, **R1) == pytest.approx(562_100, abs=1)


def test_counts_of_zero_cost_nothing():
    assert bot_cost(0, 100, 50, 10, **R1) == 0
    assert bot_cost(5, 0, 0, 0, **R1) == 0


def test_a_cache_may_cost_more_and_nothing_is_rounded():
    assert bot(3000, cached_price=0.60) > bot(0)
    assert bot_cost(1, 1, 1, 0, **R1) == pytest.approx(0.14e-6, rel=1e-12)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"num_requests": -1}, "num_requests"),
        ({"prefix_tokens": -1}, "prefix_tokens"),
        ({"prefix_tokens": 101}, "prefix_tokens .101. are a part of prompt_tokens .100."),
        ({"answer_tokens": -1}, "answer_tokens"),
        ({"reasoning_tokens": -1}, "reasoning_tokens"),
        ({"input_price": -0.1}, "input_price"),
        ({"cached_price": -0.1}, "cached_price"),
        ({"output_price": -0.1}, "output_price"),
        ({"hit_rate": 1.1}, "hit_rate"),
        ({"hit_rate": -0.1}, "hit_rate"),
    ],
)
def test_bot_cost_refuses_nonsense(change, message):
    good = {"num_requests": 10, "prompt_tokens": 100, "prefix_tokens": 50, "answer_tokens": 10, **R1}
    assert bot_cost(**good) > 0
    with pytest.raises(ValueError, match=message):
        bot_cost(**good | change)


def test_request_cost_refuses_more_cached_than_input():
    with pytest.raises(ValueError, match=r"cached_tokens .11. are a part"):
        request_cost(10, 11, 0, **R1)
