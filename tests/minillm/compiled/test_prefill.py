"""Prompts in two halves a layer compute what the decoder computes. Nothing is compiled here; test_build.py compiles."""

import pytest
import torch

from minillm.compiled.dispatch import Bucket, CompiledDecoder
from minillm.compiled.graph import DecodeGraph, HeadGraph
from minillm.compiled.prefill import HALVES, LayerHalf, Prefill, example_inputs, parameters_of, plain_parameters
from minillm.kv.storage import allocate_layers
from minillm.request import SamplingParams

PROMPTS = [[5, 9, 200], [7], list(range(60)), [1, 2] * 9, [44] * 16]


def uncompiled(decoder):
    return Prefill(decoder, *(LayerHalf(decoder, half) for half in HALVES))


@pytest.mark.parametrize("kind", ["llama", "tied", "window", "biases", "qk_norm", "no_groups"])
@pytest.mark.parametrize("quantization", [None, "int8", "int4"])
@torch.inference_mode()
def test_equals_the_decoder(make_decoder, prompts_of, kind, quantization):
    decoder = make_decoder(kind, quantization)
    for lengths, past in (([2], 0), ([40], 0), ([3, 17, 9], 0), ([5, 30], 21)):
        token_ids, positions, meta = prompts_of(lengths, past)
        cache = [layer.copy_(torch.randn(layer.shape)) for layer in allocate_layers(decoder.config, 30, 4, torch.float32)]
        copy = [layer.clone() for layer in cache]
        want, got = decoder(token_ids, positions, cache, meta), uncompiled(decoder)(token_ids, positions, copy, meta)
        assert (got - want).abs().max() <= (1e-3 if quantization else 0) * want.abs().max()
        for ours, theirs in zip(copy, cache, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-2 if quantization else 0, rtol=0)


def test_unquantized_weights_are_the_decoders_own(make_decoder):
    decoder = make_decoder("biases")
    own = {p.data_ptr() for p in decoder.parameters()}
    for_before, for_after = uncompiled(decoder).parameters[1]
    assert {p.data_ptr() for p in for_before + for_after} <= own
    # each parameter of the layer belongs to one half
    layer = decoder.layers[1]
    names = [name for half in HALVES for name in parameters_of(layer, half)]
    assert sorted(names) == sorted(name for name, _ in layer.named_parameters())


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_written_out_weights_keep_the_models_dtype(make_decoder, quantization):
    decoder = make_decoder("biases", quantization, torch.bfloat16)
    plain = plain_parameters(decoder)
    reference = dict(make_decoder("biases", None, torch.bfloat16).named_parameters())
    assert set(plain) == set(reference)
    for name, parameter in plain.items():
        assert parameter.dtype == torch.bfloat16 and parameter.shape == reference[name].shape
        worst = (parameter - reference[name]).abs().max() / reference[name].abs().max()
        assert worst < (0.02 if quantization == "int8" else 0.15), name


def test_an_exported_half_holds_no_weights(make_decoder):
    decoder = make_decoder("biases")
    for half in HALVES:
        graph = LayerHalf(decoder, half)
        assert not list(graph.parameters())
        exported = torch.export.export(graph, example_inputs(decoder, half), strict=False)
        assert not exported.state_dict and not exported.constants


@pytest.mark.parametrize("limits", [{}, {"max_num_seqs": 2}, {"max_num_batched_tokens": 24, "max_num_seqs": 7}], ids=str)
def test_in_an_engine_every_prompt_goes_through_it(tiny_llm, limits):
    params = [SamplingParams(temperature=0, max_tokens=4 + 3 * i, ignore_eos=True, logprobs=0) for i in range(len(PROMPTS))]
    plain, llm = tiny_llm(**limits), tiny_llm(**limits)
    decoder, seen = llm.engine.runner.model, []
    prefill = uncompiled(decoder)

    def counting(token_ids, positions, kv_cache, meta):
        seen.append(len(token_ids))
        assert meta.num_decodes == 0 and len(token_ids) == meta.query_start_loc[-1] >= 2
        return prefill(token_ids, positions, kv_cache, meta)

    buckets = {4: Bucket(DecodeGraph(decoder), HeadGraph(decoder))}
    llm.engine.runner.model = CompiledDecoder(decoder, buckets, counting)
    for ours, theirs in zip(llm.generate(PROMPTS, params), plain.generate(PROMPTS, params), strict=True):
        mine, his = ours.outputs[0], theirs.outputs[0]
        assert mine.token_ids == his.token_ids
        for (a,), (b,) in zip(mine.logprobs, his.logprobs, strict=True):
            assert a.logprob == pytest.approx(b.logprob, abs=1e-4)
    prompt_tokens = sum(len(p) for p in PROMPTS if len(p) > 1)  # one token is a decode, and so may be a last chunk
    assert prompt_tokens - len(PROMPTS) <= sum(seen) <= prompt_tokens
