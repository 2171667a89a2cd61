"""Requests for which the model gave no distribution: they end with an error, and those beside them must not notice."""

from __future__ import annotations

import torch
from torch import Tensor

from minillm.request import FinishReason, Request, StepOutput


@torch.inference_mode()
def set_aside(logits: Tensor, requests: list[Request]) -> list[Request]:
    """The requests whose row holds NaN or +inf, or nothing above -inf: softmax has no value there. Their rows are zeroed, so
    that any sampler gets through.

    logits [S, vocab] float32, row i for requests[i].
    """
    rows = (~logits.amax(-1).isfinite()).nonzero().flatten().tolist()  # of a row with NaN in it, amax is NaN
    if rows:
        logits[rows] = 0
    return [requests[i] for i in rows]


@torch.inference_mode()
def scrub(layers: list[Tensor], requests: list[Request]) -> None:
    """Make what these requests' blocks of a KV cache hold finite. Slots past a sequence's end are read and weighted with 0, and
    0 · NaN is NaN: whoever gets such a block next would inherit it."""
    block_ids = sorted({block for request in requests for block in request.block_ids})
    for layer in layers if block_ids else ():
        layer[block_ids] = layer[block_ids].nan_to_num(0.0, 0.0, 0.0)


def fail(output: StepOutput) -> None:
    """Turn a step's output, booked already, into the end of its request."""
    request = output.request
    del request.token_ids[len(request.token_ids) - len(output.tokens) :]
    output.tokens, output.finish_reason = [], FinishReason.ERROR
    request.finish_reason, request.stop_reason = FinishReason.ERROR, None
