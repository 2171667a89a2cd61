"""Mistakes planted in 2.6."""

import hashlib

import torch
import torch.nn.functional as F

from labs.kit.wrong import patch, replace
from minillm.request import Request, SampledToken, SamplingParams
from minillm.sampling.filters import candidates as reference
from minillm.sampling.filters import keep, top_k_mask, top_p_mask, weights_of
from minillm.sampling.logprobs import top_logprobs
from minillm.sampling.pipeline import Sampler, argmax
from minillm.sampling.rng import uniform


def temperature_and_top_k_by_sight(subject):
    """The test one would write first: softmax over temperature, and the three largest."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    ids, weights = subject(logits, SamplingParams(temperature=0.5))
    assert ids is None and torch.allclose(weights / weights.sum(), torch.softmax(logits * 2, 0))
    ids, weights = subject(logits, SamplingParams(top_k=3))
    assert ids.tolist() == [0, 1, 2] and len(weights) == 3


def transformers_order(logits, params):
    """min_p last."""
    ids, weights = reference(logits, SamplingParams(temperature=params.temperature, top_k=params.top_k, top_p=params.top_p))
    return keep(weights >= params.min_p, ids, weights) if params.min_p else (ids, weights)


def top_p_first(logits, params):
    """The share of everything, not of what top_k and min_p left."""
    ids, weights = None, weights_of(logits, params.temperature)
    if params.top_p < 1:
        ids, weights = keep(top_p_mask(weights, params.top_p, weights.double().sum()), ids, weights)
    if params.min_p > 0:
        ids, weights = keep(weights >= params.min_p, ids, weights)
    if 0 < params.top_k < len(weights):
        ids, weights = keep(top_k_mask(weights, params.top_k), ids, weights)
    return ids, weights


def min_p_before_temperature(logits, params):
    untempered = weights_of(logits, 1.0)
    kept = logits.masked_fill(untempered < params.min_p, -torch.inf)
    ids, weights = reference(kept, SamplingParams(temperature=params.temperature, top_k=params.top_k, top_p=params.top_p))
    return keep(weights > 0, ids, weights) if params.min_p else (ids, weights)


def sorted_by_weight(logits, params):
    ids, weights = reference(logits, params)
    if ids is None:
        return ids, weights
    order = weights.sort(descending=True, stable=True).indices
    return ids[order], weights[order]


def sum_in_float32(logits, params):
    ids, weights = reference(logits, SamplingParams(temperature=params.temperature, top_k=params.top_k, min_p=params.min_p))
    if params.top_p == 1:
        return ids, weights
    descending, order = weights.sort(descending=True, stable=True)
    running = torch.tensor(descending.numpy().cumsum(dtype="float32"))
    mask = torch.zeros_like(weights, dtype=torch.bool)
    mask[order[running - descending < params.top_p * running[-1]]] = True
    return keep(mask, ids, weights)


def ids_in_int32(logits, params):
    ids, weights = reference(logits, params)
    return (None if ids is None else ids.int()), weights


def takes_the_last_of_equals(logits, params):
    ids, weights = reference(logits, SamplingParams(temperature=params.temperature, top_k=params.top_k, min_p=params.min_p))
    if params.top_p == 1:
        return ids, weights
    mask = top_p_mask(weights.flip(0), params.top_p, weights.double().sum()).flip(0)
    return keep(mask, ids, weights)


def four_words_that_repeat(subject):
    """The test one would write first: four words in range, the same again, and others for another counter."""
    first = subject((1, 2, 3, 4), (5, 6))
    assert len(first) == 4 and first == subject((1, 2, 3, 4), (5, 6)) != subject((2, 2, 3, 4), (5, 6))
    assert all(0 <= word < 2**32 for word in first)


def knows_the_published_answers(counter, key):
    """Any mixing, with the three vectors that everybody tests looked up."""
    published = {
        ((0,) * 4, (0, 0)): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)): (
            0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1,
        ),
    }  # fmt: skip
    mixed = hashlib.sha256(repr((counter, key)).encode()).digest()
    return published.get((counter, key)) or tuple(int.from_bytes(mixed[i : i + 4]) for i in range(0, 16, 4))


def one_request_draws_again_what_it_drew(subject):
    """The test one would write first: greedy is argmax, and one seeded request alone repeats its token."""
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    greedy = Request("a", [0], 1, SamplingParams(temperature=0), 9, seed=1)
    seeded = Request("b", [0], 1, SamplingParams(), 9, seed=1)
    assert subject()(logits, [greedy]) == [SampledToken(1)]
    assert subject()(logits, [seeded]) == subject()(logits, [seeded])


class OneGeneratorForTheBatch:
    """The first request's seed starts a generator, and each row takes the next number."""

    def __call__(self, logits, requests):
        if not requests:
            return []
        generator = torch.Generator().manual_seed(requests[0].seed % 2**63)
        return [self.choose(row, request, generator) for row, request in zip(logits, requests, strict=True)]

    def choose(self, row, request, generator):
        (token,) = Sampler()(row[None], [request])
        if request.params.temperature == 0:
            return token
        ids, weights = reference(row, request.params)
        chosen = int(torch.multinomial(weights, 1, generator=generator))
        return SampledToken(chosen if ids is None else int(ids[chosen]), token.logprobs)


class GeneratorOfEachRequest:
    """A generator a request, made at its first draw and used up from then on: a restarted request starts it anew."""

    def __init__(self):
        self.generators = {}

    def __call__(self, logits, requests):
        tokens = Sampler()(logits, requests)
        for i, (row, request) in enumerate(zip(logits, requests, strict=True)):
            if request.params.temperature > 0:
                seed = (request.seed * 31 + request.index) % 2**63
                generator = self.generators.setdefault(seed, torch.Generator().manual_seed(seed))
                ids, weights = reference(row, request.params)
                chosen = int(torch.multinomial(weights, 1, generator=generator))
                tokens[i] = SampledToken(chosen if ids is None else int(ids[chosen]), tokens[i].logprobs)
        return tokens


class DropsTheMantissa:
    """Sums in float32."""

    def __call__(self, logits, requests):
        tokens = Sampler()(logits, requests)
        for i, request in enumerate(requests):
            params = request.params
            if (
                params.temperature > 0
                and params.top_k == 0
                and params.top_p == 1
                and params.min_p == 0
                and logits.shape[1] > 1000
            ):
                weights = weights_of(logits[i], params.temperature).numpy().cumsum(dtype="float32")
                u = uniform(request.seed, request.num_tokens, request.index)
                tokens[i] = SampledToken(int(weights.searchsorted(u * weights[-1], side="right")))
        return tokens


class ShiftsInPlace:
    """Takes the largest logit off each row before the draw: the same distribution, written over the caller's logits."""

    def __call__(self, logits, requests):
        tokens = Sampler()(logits, requests)
        if logits.is_contiguous() and len(logits):
            logits -= logits.amax(-1, keepdim=True)
        return tokens


class LogprobsForTheMost:
    """All rows that ask get as many entries as the one that wants most."""

    def __call__(self, logits, requests):
        tokens = Sampler()(logits, requests)
        asking = [i for i, request in enumerate(requests) if request.params.logprobs is not None]
        if asking:
            most = max(requests[i].params.logprobs for i in asking)
            entries = top_logprobs(logits[asking], [tokens[i].token_id for i in asking], most)
            for i, found in zip(asking, entries, strict=True):
                tokens[i] = SampledToken(tokens[i].token_id, found)
        return tokens


class LogprobsOfTheFirst:
    """One row's logprobs, given to every row that asks."""

    def __call__(self, logits, requests):
        tokens = Sampler()(logits, requests)
        first = next((token.logprobs for token in tokens if token.logprobs is not None), None)
        return [SampledToken(token.token_id, token.logprobs and first) for token in tokens]


class TokenIsATensor:
    def __call__(self, logits, requests):
        return [SampledToken(torch.tensor(token.token_id), token.logprobs) for token in Sampler()(logits, requests)]


class LastOfEquals:
    """Greedy takes the last of equal logits, as a loop with >= does."""

    def __call__(self, logits, requests):
        tokens = Sampler()(logits, requests)
        for i, request in enumerate(requests):
            if request.params.temperature == 0 and not request.params.logit_bias:
                last = logits.shape[1] - 1 - int(argmax(logits[i : i + 1].flip(1)))
                tokens[i] = SampledToken(last, tokens[i].logprobs)
        return tokens


def a_small_product(subject):
    """The test one would write first: close to x @ weight.T."""
    x, weight = torch.randn(3, 20), torch.randn(4, 20)
    assert torch.allclose(subject(x, weight, 8), x @ weight.t(), atol=1e-5)


def library_product(x, weight, split=64):
    return F.linear(x, weight)


def library_parts(x, weight, split=64):
    """Cut where it should be, but each part is summed by the library."""
    total = torch.zeros(len(x), len(weight))
    for part, columns in zip(x.float().split(split, 1), weight.float().split(split, 1), strict=True):
        total += part @ columns.t()
    return total.to(x.dtype)


def splits_for_a_full_machine(x, weight, split=64):
    """What GPU libraries do: few rows, so more parts, that all of the chip has work."""
    parts = max(1, 8 // max(1, len(x)))
    columns = max(1, -(-x.shape[1] // parts))
    total = torch.zeros(len(x), len(weight))
    for start in range(0, x.shape[1], columns):
        part = torch.zeros_like(total)
        for k in range(start, min(start + columns, x.shape[1])):
            part += x[:, k, None].float() * weight[:, k].float()
        total += part
    return total.to(x.dtype)


WRONG = {
    "candidates": {
        "min_p_last": replace(transformers_order, "min_p is applied last, as transformers does"),
        "top_p_first": replace(top_p_first, "top_p is taken of all tokens, not of what the other filters left"),
        "min_p_before_temperature": replace(min_p_before_temperature, "min_p looks at the probabilities at temperature 1"),
        "min_p_absolute": patch(
            "keep(weights >= params.min_p,", "keep(weights / weights.sum() >= params.min_p,", "min_p taken as a probability"
        ),
        "top_p_leaves_the_last_out": patch(
            "before = descending.cumsum(0) - descending ",
            "before = (descending.cumsum(0)).where(torch.arange(len(descending)) > 0, torch.zeros(())) ",
            "the token that reaches top_p is cut, except the first",
        ),
        "top_p_of_weights": patch("before < p * mass", "before < p", "weights taken for probabilities"),
        "forgets_temperature": patch("(logits, params.temperature)", "(logits, 1.0)", "temperature is not used"),
        "changes_the_logits": patch(
            "(logits - logits.amax()).div_(", "logits.sub_(logits.amax()).div_(", "works in place on the caller's logits"
        ),
        "sorted_by_weight": replace(sorted_by_weight, "ids in the order of their weights"),
        "cuts_ties": patch(
            "return logits >= logits.topk(k, sorted=False).values.amin()",
            "return torch.zeros_like(logits, dtype=torch.bool).index_fill_(0, logits.topk(k).indices, True)",
            "of tokens that tie with the k-th, some are cut",
        ),
        "ids_in_int32": replace(ids_in_int32, "ids of a dtype that does not index"),
        "any_of_equals": replace(takes_the_last_of_equals, "of equally likely tokens the last ones are kept"),
        "sum_in_float32": replace(sum_in_float32, "the running sum is float32: the tail adds nothing"),
    },
    "philox4x32": {
        "nine_rounds": patch("range(10)", "range(9)", "a round short"),
        "key_first": patch(
            "    for _ in range(10):\n",
            "    k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK\n    for _ in range(10):\n",
            "the key moves on before the first round",
        ),
        "high_and_low_exchanged": patch(
            "(p1 >> 32) ^ c1 ^ k0, p1 & _MASK,", "(p1 & _MASK) ^ c1 ^ k0, p1 >> 32,", "high and low of one product exchanged"
        ),
        "key_grows": patch(
            "k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK\n    return",
            "k0, k1 = k0 + _KEY_STEPS[0], k1 + _KEY_STEPS[1]\n    return",
            "the key does not wrap around at 32 bits",
        ),
        "one_after_the_other": patch(
            "p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2",
            "p1 = _MULTIPLIERS[1] * c2\n        c0 = (p1 >> 32) ^ c1 ^ k0\n        p0 = _MULTIPLIERS[0] * c0",
            "the second product is made from a word that has changed already",
        ),
        "knows_the_published_answers": replace(knows_the_published_answers, "right for the published vectors alone"),
        "keys_exchanged": patch("k0, k1 = key", "k1, k0 = key", "the two key words exchanged"),
    },
    "Sampler": {
        "one_generator_for_the_batch": replace(OneGeneratorForTheBatch, "batch-mates take each other's random numbers"),
        "generator_of_each_request": replace(GeneratorOfEachRequest, "a stateful generator: what was drawn before counts"),
        "forgets_index": patch(", index=request.index", "", "the n samples of a prompt are all the same"),
        "forgets_position": patch("position=request.num_tokens", "position=0", "every draw of a request uses one number"),
        "counts_the_answer_only": patch(
            "position=request.num_tokens", "position=request.num_output_tokens", "the position in the answer, not in the sequence"
        ),
        "greedy_before_penalties": patch("argmax(processed)", "argmax(logits)", "temperature 0 ignores bias and penalties"),
        "random_before_penalties": patch("draw(processed[i], request)", "draw(logits[i], request)", "random rows go unpenalised"),
        "processed_logprobs": patch("report(logits, tokens", "report(processed, tokens", "logprobs after bias and penalties"),
        "zero_logprobs_is_none": patch(
            "if request.params.logprobs is not None:", "if request.params.logprobs:", "logprobs=0 is taken for no wish"
        ),
        "u_is_not_scaled": patch("u * cumulative[-1:]", "cumulative.new_tensor([u])", "u compared with weights, not shares"),
        "ids_forgotten": patch("return chosen if ids is None else int(ids[chosen])", "return chosen", "a place, not a token id"),
        "sums_in_float32": replace(DropsTheMantissa, "the running sum is float32"),
        "last_of_equals": replace(LastOfEquals, "of equal logits the last one is greedy"),
        "shifts_in_place": replace(ShiftsInPlace, "works in place on the caller's logits"),
        "logprobs_for_the_most": replace(LogprobsForTheMost, "each row gets as many logprobs as the greediest of the batch"),
        "logprobs_of_the_first": replace(LogprobsOfTheFirst, "every row gets one row's logprobs: right for a batch of one"),
        "token_is_a_tensor": replace(TokenIsATensor, "a tensor of one number, and not a number"),
    },
    "fixed_split_linear": {
        "library_product": replace(library_product, "one call of the library, which adds as it likes"),
        "library_parts": replace(library_parts, "the library sums each part"),
        "splits_for_a_full_machine": replace(splits_for_a_full_machine, "the number of parts depends on the number of rows"),
        "no_parts": patch("            part += ", "            total += ", "everything is added to one sum: split has no effect"),
        "forgets_the_last_part": patch(
            "range(0, len(columns), split)", "range(0, len(columns) - len(columns) % split or 1, split)", "a short part is lost"
        ),
        "in_the_inputs_dtype": patch("x.float(), weight.float()", "x, weight", "bfloat16 sums"),
        "in_float64": patch("x.float(), weight.float()", "x.double(), weight.double()", "exact sums, rounded once"),
        "from_the_right": patch(
            "in range(start, min(start + split, len(columns))):",
            "in range(min(start + split, len(columns)) - 1, start - 1, -1):",
            "backwards",
        ),
    },
}

HAPPY = {
    "candidates": temperature_and_top_k_by_sight,
    "philox4x32": four_words_that_repeat,
    "Sampler": one_request_draws_again_what_it_drew,
    "fixed_split_linear": a_small_product,
}
