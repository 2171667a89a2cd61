"""What tokens cost: on a rented machine, and from somebody's API. Money is in US dollars, prices of tokens are per million."""

from __future__ import annotations

from shared.units import not_negative, positive

PER = 1_000_000  # token prices are quoted for a million


def cost_per_million(price_per_hour: float, tokens_per_s: float) -> float:
    """US dollars for a million tokens from a machine that is paid by the hour and never idle.

    price_per_hour: US dollars; tokens_per_s: all requests together. An idle share u makes it 1 / (1 - u) times as much.
    Raises ValueError unless both are above zero.
    """
    positive(price_per_hour=price_per_hour, tokens_per_s=tokens_per_s)
    return price_per_hour / (tokens_per_s * 3600) * PER


def request_cost(
    input_tokens: float,
    cached_tokens: float,
    output_tokens: float,
    *,
    input_price: float,
    cached_price: float,
    output_price: float,
) -> float:
    """US dollars an API charges for tokens of three kinds, each billed once.

    input_tokens: the whole prompt; cached_tokens: of those, what the provider found in its prefix cache; output_tokens: all that
    the model wrote, reasoning included. Prices: US dollars per million tokens.
    Raises ValueError for a negative number, or more cached tokens than input tokens.
    """
    not_negative(input_tokens=input_tokens, cached_tokens=cached_tokens, output_tokens=output_tokens)
    not_negative(input_price=input_price, cached_price=cached_price, output_price=output_price)
    if cached_tokens > input_tokens:
        raise ValueError(f"cached_tokens ({cached_tokens}) are a part of input_tokens ({input_tokens}) and cannot be more")
    fresh = (input_tokens - cached_tokens) * input_price
    return (fresh + cached_tokens * cached_price + output_tokens * output_price) / PER


def bot_cost(
    num_requests: int,
    prompt_tokens: int,
    prefix_tokens: int,
    answer_tokens: int,
    *,
    input_price: float,
    cached_price: float,
    output_price: float,
    reasoning_tokens: int = 0,
    hit_rate: float = 1.0,
) -> float:
    """What a chat bot's requests cost, in US dollars, at a provider that bills a cached prefix of the prompt at a lower price.

    A provider finds a prompt in its cache only as far as it begins with the same tokens as an earlier one. So prefix_tokens is
    how long the prompts agree from the very start: 0 when each begins with the date or the user's question, the length of the
    instructions when these were moved to the front.

    num_requests: how many requests, all alike.
    prompt_tokens: tokens of one prompt, the prefix included.
    prefix_tokens: tokens at the start of the prompt that are the same in every request.
    answer_tokens: tokens of one answer, as the user sees it.
    input_price, cached_price, output_price: US dollars per million tokens of prompt, of cached prompt, of output.
    reasoning_tokens: tokens the model thinks before it answers; they are billed as output, though the user never sees them.
    hit_rate: share of requests that find the prefix in the cache, 0 to 1; the others pay the full input price for it.

    Not rounded. Counts and prices of zero are fine: no requests, or nothing in and out, cost 0. A cached price above the input
    price is unusual, and billed as it stands.
    Raises ValueError if a count or price is negative, prefix_tokens is more than prompt_tokens, or hit_rate is outside 0 to 1.
    """
    not_negative(num_requests=num_requests, prefix_tokens=prefix_tokens)
    not_negative(answer_tokens=answer_tokens, reasoning_tokens=reasoning_tokens)
    if prefix_tokens > prompt_tokens:
        raise ValueError(f"prefix_tokens ({prefix_tokens}) are a part of prompt_tokens ({prompt_tokens}) and cannot be more")
    if not 0 <= hit_rate <= 1:
        raise ValueError(f"hit_rate is a share between 0 and 1, got {hit_rate}")
    prices = {"input_price": input_price, "cached_price": cached_price, "output_price": output_price}
    one = request_cost(prompt_tokens, prefix_tokens * hit_rate, answer_tokens + reasoning_tokens, **prices)
    return num_requests * one
