"""Log-probabilities to report: of a chosen token, and of the likeliest ones beside it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from minillm.request import TokenLogprob

Normaliser = Callable[[Tensor], Tensor]


def log_sum_exp(logits: Tensor) -> Tensor:
    """What is subtracted from a row's logits to make them log-probabilities: ln Σ exp. [R, vocab] -> [R, 1]."""
    return logits.logsumexp(-1, keepdim=True)


def top_logprobs(
    logits: Tensor, token_ids: list[int], count: int, normaliser: Normaliser = log_sum_exp
) -> list[tuple[TokenLogprob, ...]]:
    """For each row the log-probability of its own token, then those of the `count` likeliest, in order.

    logits [R, vocab] float32, the model's own: natural log of their softmax, before bias, penalties, temperature and filters
    (vLLM's default, logprobs_mode="raw_logprobs"). token_ids: R of them. The own token appears a second time where it is
    among the likeliest. Equally likely tokens share a rank, and of those listed the lower id stands first.
    normaliser: another way to compute what log_sum_exp does.
    """
    total = normaliser(logits)
    own = logits.gather(1, logits.new_tensor(token_ids).long().unsqueeze(1))
    ranks = (logits > own).sum(-1, keepdim=True) + 1
    ids, values = likeliest(logits, min(count, logits.shape[1]))
    # everything likelier than one of the likeliest is among them itself
    top_ranks = (values.unsqueeze(1) > values.unsqueeze(2)).sum(-1) + 1
    columns = zip(
        token_ids, (own - total).flatten().tolist(), ranks.flatten().tolist(),
        ids.tolist(), (values - total).tolist(), top_ranks.tolist(), strict=True,
    )  # fmt: skip
    return [
        (TokenLogprob(token, logprob, rank), *map(TokenLogprob, top_ids, top_logprobs, top_ranks))
        for token, logprob, rank, top_ids, top_logprobs, top_ranks in columns
    ]


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """ids [R, count] int64 and logits [R, count] of each row's likeliest tokens, in order; of equals the lower id first."""
    ids = logits.topk(count, sorted=False).indices.sort().values  # topk leaves the order of equals open
    values, order = logits.gather(1, ids).sort(descending=True, stable=True)
    return ids.gather(1, order), values
