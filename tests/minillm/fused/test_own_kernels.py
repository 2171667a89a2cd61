"""Every kernel of the engine replaced by the caller's, all at once: each is called, and the tokens are those of torch."""

from collections import Counter

import pytest

from minillm.parts import PARTS
from minillm.request import SamplingParams

KERNELS = [name for name, part in PARTS.items() if part.slot == "kernels"]
FLAGS = {"as loaded": {"linear": "triton"}, "int4": {"quantization": "int4"}}
NOT_CALLED = {"as loaded": {"kernels.w4a16"}, "int4": {"kernels.gemm", "kernels.gemv"}}
# The first takes two steps, the second of which finds its beginning in the cache; so does the third, which comes later.
LONG = list(range(3, 43))
GREEDY = [LONG, [5, 9, 200], [*LONG[:34], 7]]
DRAWN = [([8, 1, 250], {"logprobs": 2}), ([17] * 5, {"top_p": 0.9, "seed": 11})]


def answers(llm):
    """Tokens of a greedy batch, then of a drawn one, and the logprobs of the first draw."""
    greedy = llm.generate(GREEDY, SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    params = [SamplingParams(**{"temperature": 1.5, "seed": 4, "max_tokens": 4, "ignore_eos": True} | wish) for _, wish in DRAWN]
    outputs = [g.outputs[0] for g in (*greedy, *llm.generate([prompt for prompt, _ in DRAWN], params))]
    logprobs = [entry.logprob for token in outputs[len(greedy)].logprobs for entry in token]
    return [output.token_ids for output in outputs], logprobs


def counting(calls, name):
    reference = PARTS[name].load()

    def wrapper(*args, **kwargs):
        calls[name] += 1
        return reference(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("matrices", FLAGS)
def test_all_of_them_at_once(tiny_llm, matrices):
    calls: Counter[str] = Counter()
    options = {"max_num_seqs": 2, "max_num_batched_tokens": 32, "seed": 1}
    mine = {name: counting(calls, name) for name in KERNELS}
    ours = tiny_llm(kernels="triton", mine=mine, **options, **FLAGS[matrices])
    plain = tiny_llm(kernels="torch", enforce_eager=True, **options, **FLAGS[matrices] | {"linear": "torch"})
    tokens, logprobs = answers(ours)
    expected, expected_logprobs = answers(plain)
    assert tokens == expected
    assert logprobs == pytest.approx(expected_logprobs, abs=1e-4)
    assert set(KERNELS) - set(calls) == NOT_CALLED[matrices] == set(KERNELS) - set(ours.own_parts)
    assert ours.engine.config.enforce_eager, "what a graph has recorded is not replaced"
