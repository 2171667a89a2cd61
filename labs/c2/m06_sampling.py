"""2.6 Sampling: from a row of logits to one token, which nobody else's request can change.

Write the four below, then run `labs check 2.6` (or `pytest labs/c2/test_m06_sampling.py`). Stuck? `labs hint 2.6`. They do not
depend on one another: what you have not written, minillm's own code stands in for.
When Sampler passes, the engine can run it: `minillm generate --mine=sampling.pipeline --prompt "What is the capital of France?"`.

Of a request (minillm.request.Request) you need

    request.params      its SamplingParams: temperature, top_k, top_p, min_p, logprobs, and what `process` reads
    request.seed        int of 64 bits, its own
    request.num_tokens  tokens known so far, prompt and answer: the position of the one to be drawn
    request.index       which of the n samples of one prompt it is, from 0
"""

from __future__ import annotations

import torch  # noqa: F401  yours to use
from torch import Tensor

from labs.kit import exercise
from minillm.request import Request, SampledToken, SamplingParams
from minillm.sampling import filters, logprobs, penalties, rng  # noqa: F401  yours to use


@exercise(reference="minillm.sampling.filters:candidates")
def candidates(logits: Tensor, params: SamplingParams) -> tuple[Tensor | None, Tensor]:
    """The tokens that may be drawn, and weights proportional to their probabilities.

    logits: [vocab] float32, not changed; -inf marks a token that is impossible and never gets a weight above 0.
    params.temperature is positive; top_k 0, top_p 1.0 and min_p 0.0 each mean "no such filter".

    Returns ids [K] int64 in ascending order, and weights [K] float32 in the order of ids. ids is None where no filter is asked
    for; None stands for the whole vocabulary, and may be returned where a filter cut nothing, too. Weights are
    exp((logit - largest logit) / temperature): 1 for the likeliest token, and no overflow at any temperature from 1e-6 to 1e4.
    They are not normalised.

    In this order, each on what the one before it left:

    1. temperature: logits are divided by it.
    2. min_p: keep the tokens whose probability is at least min_p times that of the likeliest one.
    3. top_k: keep the top_k largest, and all that tie with the last of them. It may exceed the vocabulary: all stay.
    4. top_p: of the tokens that are left, keep the smallest set of the likeliest whose probabilities reach the share top_p of
       *their* sum, the token that reaches it included; never none. Of equally likely tokens the lower id goes first. Sum in
       float64: in float32 a vocabulary's sum is off by more than its tail.

    The order is vLLM's. (transformers puts min_p last, llama.cpp temperature: see the notebook.)
    """
    raise NotImplementedError


@exercise(reference="minillm.sampling.rng:philox4x32")
def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox-4x32-10: four random 32-bit words that depend on counter and key and on nothing else.

    Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. counter, key and result are Python ints in
    [0, 2**32). There are ten rounds. One round makes from (c0, c1, c2, c3) and (k0, k1)

        p0 = 0xD2511F53 * c0                p1 = 0xCD9E8D57 * c2            64-bit products
        c0, c1, c2, c3 = high(p1) ^ c1 ^ k0,  low(p1),  high(p0) ^ c3 ^ k1,  low(p0)

    all four at once, where high and low are the upper and the lower 32 bits. *After* each round

        k0 += 0x9E3779B9,  k1 += 0xBB67AE85        both modulo 2**32

    so the first round uses the key as it was given. The result is the counter after the tenth round.
    """
    raise NotImplementedError


@exercise(reference="minillm.sampling.pipeline:Sampler", part="sampling.pipeline")
class Sampler:
    """One token for each row of logits. It keeps nothing between calls: a draw is a function of the request."""

    def __call__(self, logits: Tensor, requests: list[Request]) -> list[SampledToken]:
        """logits: [S, vocab] float32, row i for requests[i], S may be 0; not changed. Returns S tokens, in order. What a row
        gets depends on its logits and its request alone, whatever else is in the batch and in whatever order.

        For each row:

        1. `penalties.process(logits, requests)` applies min_tokens, logit_bias and the penalties of all requests that ask for
           them, and returns new logits (or the same tensor if nobody asks). Everything below but the logprobs is on these.
        2. temperature 0: the largest logit, of equals the lowest id. No random number is used, no filter counts.
        3. any other: `filters.candidates(row, request.params)` gives ids (None: all) and weights. Add the weights up, in the
           order given and in float64; take `rng.uniform(request.seed, request.num_tokens, request.index)`, a number u of
           [0, 1); the token is the first whose running sum is *greater* than u times the sum of all.

        Returns SampledToken(token_id, logprobs). logprobs is None unless request.params.logprobs is a number (0 counts):
        then it is what `logprobs.top_logprobs(rows, token_ids, count)` gives for this row, its token and that number, from the
        logits *as they came in*, before step 1. (rows [R, vocab], and a list of R ids; it returns a list of R results.)
        """
        raise NotImplementedError


@exercise(reference="minillm.model.fixed_split:fixed_split_linear")
def fixed_split_linear(x: Tensor, weight: Tensor, split: int = 64) -> Tensor:
    """x·weightᵀ, with a stated order of addition: row i is bit for bit what it would be alone.

    x: [T, K], weight: [N, K], float32 or bfloat16; T may be 0. Returns [T, N] in x's dtype. split: columns in a part, at least 1.

    All arithmetic is in float32; only the result is rounded to x's dtype. For each t and n

        total = 0
        for each part of `split` columns, from left to right (the last one may be shorter):
            part = 0
            for each column k of the part, from left to right:
                part = part + x[t, k] * weight[n, k]       the product is rounded to float32 before it is added
            total = total + part

    Loop over k in Python, with all t and n at once in each tensor operation. Neither `@` nor `sum` will do: how *they* add
    depends on the shape (and for some libraries on the address) of what they are given. Elementwise `*` and `+` of tensors
    have no choice: IEEE 754 allows one result each. torch.addcmul and float64 round differently.
    """
    raise NotImplementedError
