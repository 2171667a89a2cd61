"""The whole engine on our kernels, in Triton's interpreter, on a tiny model."""

import logging

import pytest
import torch

from minillm.compiled.cuda_graphs import captured
from minillm.compiled.dispatch import CompiledDecoder
from minillm.fused.decoder import FusedDecoder
from minillm.llm import LLM
from minillm.model.ops import swiglu
from minillm.request import SamplingParams

PROMPTS = [[5, 9, 200], [7], list(range(40)), [1, 2] * 9]
PARAMS = [SamplingParams(temperature=0, max_tokens=3 + i, ignore_eos=True) for i in range(len(PROMPTS))]


def answers(llm):
    return [g.outputs[0].token_ids for g in llm.generate(PROMPTS, PARAMS)]


@pytest.fixture
def expected(tiny_llm):
    return answers(tiny_llm(max_num_seqs=4, kernels="torch"))


def test_the_same_tokens_as_torch(tiny_llm, expected, caplog):
    with caplog.at_level(logging.WARNING, "minillm"):
        llm = tiny_llm(max_num_seqs=4, max_num_batched_tokens=32, kernels="triton")
    assert isinstance(llm.engine.runner.model, FusedDecoder)
    assert "no GPU: Triton's kernels run in its interpreter" in caplog.text
    assert answers(llm) == expected


def test_the_same_tokens_through_recorded_steps(tiny_llm, expected):
    """As on a GPU, with the recording of a graph replaced by a call that writes to the same output each time."""
    llm = tiny_llm(max_num_seqs=4, max_model_len=64, kernels="triton")
    model, kv = llm.engine.runner.model, llm.engine.scheduler.kv

    def on_a_cpu(run):
        output = run().clone()
        return lambda: output.copy_(run()), output

    graphs = captured(llm.engine.config, model, kv.layers, 64, on_a_cpu)
    assert isinstance(graphs, CompiledDecoder) and {bucket.max_width for bucket in graphs.buckets.values()} == {4}
    llm.engine.runner.model = graphs
    assert answers(llm) == expected


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_quantized_matrices(tiny_llm, quantization):
    """The same small integers as on a CPU, multiplied by our kernels: logits equal but for rounding."""
    options = {"sharpen": False, "quantization": quantization, "max_num_seqs": 4}
    ours, torchs = (tiny_llm(kernels=kernels, **options).engine.runner.model for kernels in ("triton", "torch"))
    for name in ("qkv_proj", "down_proj"):
        a, b = (getattr(getattr(model, "decoder", model).layers[1], name) for model in (ours, torchs))
        dense, reference = a.method.dense(a), b.method.dense(b)
        torch.testing.assert_close(dense, reference, rtol=1e-5, atol=1e-6)
        for rows in (1, 3, 40):
            x = torch.randn(rows, a.in_features, generator=torch.Generator().manual_seed(rows))
            torch.testing.assert_close(a(x), x @ dense.T, rtol=1e-4, atol=1e-5)


def test_an_operator_of_the_callers_own_is_not_passed_over(tiny_folder):
    calls = []

    def own(gate, up):
        calls.append(gate.shape)
        return swiglu(gate, up)

    options = {"load_format": "dummy", "dtype": "float32", "threads": 1, "kernels": "triton", "attention": "sdpa"}
    llm = LLM(str(tiny_folder), **options, mine={"ops.swiglu": own})
    llm.generate([[1, 2]], SamplingParams(temperature=0, max_tokens=1))
    assert calls
