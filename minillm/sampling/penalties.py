"""What changes a request's logits before any choice is made, greedy or random: min_tokens, logit_bias, penalties."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from minillm.request import Request


def process(logits: Tensor, requests: list[Request]) -> Tensor:
    """Every request's own changes, applied to its row. logits [S, vocab] float32, row i for requests[i]; they are left as
    they are, for the logprobs: the result is a copy, or the same tensor where no request asks for anything."""
    rows = [i for i, request in enumerate(requests) if changes_logits(request)]
    if rows:
        logits = logits.clone()
        for i in rows:
            process_row(logits[i], requests[i])
    return logits


def changes_logits(request: Request) -> bool:
    params = request.params
    return bool(
        params.logit_bias
        or params.repetition_penalty != 1
        or params.presence_penalty
        or params.frequency_penalty
        or request.num_output_tokens < params.min_tokens
    )


def process_row(row: Tensor, request: Request) -> None:
    """Change one request's logits [vocab] in place, in vLLM's order."""
    params = request.params
    if request.num_output_tokens < params.min_tokens:
        forbid(row, request.eos_token_ids.union(params.stop_token_ids))
    if params.logit_bias:
        add_bias(row, params.logit_bias)
    if params.repetition_penalty != 1:
        penalise_repetition(row, request.token_ids, params.repetition_penalty)
    if params.presence_penalty or params.frequency_penalty:
        penalise_presence_and_frequency(row, request.output_token_ids, params.presence_penalty, params.frequency_penalty)


def forbid(row: Tensor, token_ids: frozenset[int]) -> None:
    """Make tokens impossible: logit -inf. An end-of-sequence id that lies outside the vocabulary already is."""
    row[_ids(row, (token for token in token_ids if token < row.shape[0]))] = -torch.inf


def add_bias(row: Tensor, bias: tuple[tuple[int, float], ...]) -> None:
    """Add to the logits of single tokens (OpenAI's logit_bias): 100 all but forces a token, -100 all but bans it."""
    row.index_add_(0, _ids(row, (token for token, _ in bias)), row.new_tensor([value for _, value in bias]))


def penalise_repetition(row: Tensor, token_ids: list[int], penalty: float) -> None:
    """Divide the logit of every token in token_ids (prompt and answer) by penalty if positive, else multiply it.

    Keskar et al., "CTRL: A Conditional Transformer Language Model for Controllable Generation", 2019, section 4.1; the two
    cases, transformers' and vLLM's, make a penalty above 1 lower a negative logit as well.
    """
    ids = _ids(row, set(token_ids))
    seen = row[ids]
    row[ids] = torch.where(seen > 0, seen / penalty, seen * penalty)


def penalise_presence_and_frequency(row: Tensor, token_ids: list[int], presence: float, frequency: float) -> None:
    """logit -= presence + frequency · (number of occurrences), for every token in token_ids (the answer so far; OpenAI's)."""
    counts = Counter(token_ids)
    row[_ids(row, counts)] -= presence + frequency * row.new_tensor(list(counts.values()))


def _ids(row: Tensor, token_ids) -> Tensor:
    return torch.tensor(list(token_ids), dtype=torch.int64, device=row.device)
