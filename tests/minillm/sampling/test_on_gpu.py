"""The batch sampler, in Triton's interpreter: a request gets from it what Sampler would have given."""

from dataclasses import replace

import pytest
import torch

from minillm.sampling.on_gpu import SamplingKernels, TritonSampler
from minillm.sampling.pipeline import Sampler

WISHES = (
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 0.9, "min_p": 0.05},
    {"temperature": 2.0, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1.0, "logit_bias": {3: 4.0, 7: -100.0}},
    {"temperature": 1.0, "repetition_penalty": 1.5, "presence_penalty": 0.5, "prompt": (1, 2), "output": (4, 4, 9)},
    {"temperature": 1.0, "min_tokens": 9, "eos": (0, 2), "index": 3},
    {"temperature": 0.0, "logit_bias": {11: 100.0}},
)


def both(logits, requests):
    before = logits.clone()
    ours = TritonSampler()(logits, requests)
    assert torch.equal(logits, before), "the model's logits are for the logprobs, and must stay"
    return ours, Sampler()(logits, requests)


@pytest.mark.parametrize("turn", range(12))
def test_the_same_tokens_as_the_sampler(make_request, turn):
    """Ten requests of every kind, twelve times with other logits and seeds."""
    generator = torch.Generator().manual_seed(turn)
    logits = 3 * torch.randn(len(WISHES), 97, generator=generator)
    requests = [make_request(seed=7919 * turn + i, **wish) for i, wish in enumerate(WISHES)]
    ours, theirs = both(logits, requests)
    assert ours == theirs


@pytest.mark.parametrize("seed", [0, 1, -1, -(2**63), 2**63 - 1, 2**63, 2**64 - 1])
def test_all_64_bits_of_a_seed_count(make_request, seed):
    logits = torch.zeros(8, 200)
    requests = [make_request(temperature=1.0, seed=seed, prompt=tuple(range(1, 2 + i))) for i in range(8)]
    ours, theirs = both(logits, requests)
    assert ours == theirs and len({token.token_id for token in ours}) > 4


@pytest.mark.parametrize("temperature", [1e-300, 1e300])
def test_temperatures_that_float32_cannot_hold(make_request, temperature):
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0]]).repeat(16, 1)
    requests = [make_request(temperature=temperature, seed=i) for i in range(16)]
    ours, theirs = both(logits, requests)
    assert ours == theirs and len({token.token_id for token in ours}) > 1


def test_greedy_batches_and_empty_ones(make_request):
    logits = torch.tensor([[0.0, 2.0, 2.0], [5.0, -1.0, 0.0]])
    ours, theirs = both(logits, [make_request(temperature=0) for _ in range(2)])
    assert ours == theirs and [token.token_id for token in ours] == [1, 0]
    assert TritonSampler()(logits[:0], []) == []


def test_logprobs_are_the_models_own(make_request):
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(3))
    requests = [make_request(temperature=1.0, logprobs=3, logit_bias={4: 50.0}), make_request(temperature=0, logprobs=0)]
    ours, theirs = both(logits, requests)
    assert [token.token_id for token in ours] == [token.token_id for token in theirs]
    assert_same_logprobs(ours, theirs)
    assert len(ours[0].logprobs) == 4


def test_logprobs_come_from_the_softmax_kernel(make_request):
    """Of tokens whose probability is 0 in float32, too, and with the same ranks and order among equals."""
    seen = []

    def own(x):
        seen.append(x.shape)
        return torch.softmax(x, -1)

    logits = torch.tensor([[300.0, -900.0, 5.0, 5.0, 299.0], [1.0, 1.0, 1.0, 1.0, -torch.inf]])
    requests = [make_request(temperature=0, logprobs=5), make_request(temperature=0, logprobs=3), make_request(temperature=0)]
    logits = torch.cat([logits, torch.randn(1, 5)])
    ours = TritonSampler(replace(SamplingKernels(), softmax=own))(logits, requests)
    theirs = Sampler()(logits, requests)
    assert_same_logprobs(ours, theirs)
    assert min(entry.logprob for entry in ours[0].logprobs) == pytest.approx(-1200.3, abs=0.1)
    assert seen == [(1, 5), (1, 5)], "only for those who ask"


def assert_same_logprobs(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        assert [(entry.token_id, entry.rank) for entry in mine.logprobs or ()] == [
            (entry.token_id, entry.rank) for entry in other.logprobs or ()
        ]
        assert [e.logprob for e in mine.logprobs or ()] == pytest.approx([e.logprob for e in other.logprobs or ()], abs=1e-5)


def test_kernels_choose_it_and_an_own_sampler_goes_first(tiny_folder, tiny_llm):
    from minillm.llm import LLM

    class Own(Sampler):
        pass

    assert isinstance(tiny_llm(kernels="triton").engine.sampler, TritonSampler)
    assert type(tiny_llm(kernels="torch").engine.sampler) is Sampler
    options = {"load_format": "dummy", "dtype": "float32", "threads": 1, "kernels": "triton"}
    assert type(LLM(str(tiny_folder), mine={"sampling.pipeline": Own}, **options).engine.sampler) is Own
