"""Which rows go through which graph: with graphs that are not compiled, the answers must be those without graphs."""

import pytest
import torch

from minillm.compiled import dispatch
from minillm.compiled.dispatch import Bucket, CompiledDecoder, find
from minillm.compiled.graph import DecodeGraph, HeadGraph
from minillm.config import EngineConfig
from minillm.request import SamplingParams

PROMPTS = [[5, 9, 200], [7], list(range(60)), [1, 2] * 9, [44] * 16, [3, 1, 4, 1, 5], [250, 251]]


class Counting:
    """Graphs that note the batch sizes they were called with."""

    def __init__(self, decoder, sizes, max_width=None):
        self.decodes, self.heads = [], []
        self.decode, self.head = DecodeGraph(decoder), HeadGraph(decoder)
        self.buckets = {size: Bucket(self._decode, self._head, max_width) for size in sizes}

    def _decode(self, token_ids, positions, tables, kv_cache):
        assert token_ids.shape == positions.shape == tables.shape[:1] and tables.shape[1] >= 2
        self.decodes.append(len(token_ids))
        return self.decode(token_ids, positions, tables, kv_cache)

    def _head(self, hidden):
        self.heads.append(len(hidden))
        return self.head(hidden)


def answers(llm, prompts):
    # different lengths, so that every batch size occurs and prompts arrive beside running decodes
    params = [SamplingParams(temperature=0, max_tokens=4 + 3 * i, ignore_eos=True) for i in range(len(prompts))]
    return [g.outputs[0].token_ids for g in llm.generate(prompts, params)]


def equip(llm, sizes, **options):
    decoder = llm.engine.runner.model
    counting = Counting(decoder, sizes, **options)
    llm.engine.runner.model = CompiledDecoder(decoder, counting.buckets)
    return counting


@pytest.mark.parametrize("sizes", [[1, 4, 8], [2, 3], [16], [1]], ids=str)
@pytest.mark.parametrize("limits", [{}, {"max_num_seqs": 3}, {"max_num_batched_tokens": 24, "max_num_seqs": 7}], ids=str)
def test_every_batch_size_runs_and_answers_are_the_same(tiny_llm, sizes, limits):
    llm = tiny_llm(**limits)
    counting = equip(llm, sizes)
    assert answers(llm, PROMPTS) == answers(tiny_llm(**limits), PROMPTS)
    assert counting.decodes and set(counting.decodes) | set(counting.heads) <= set(sizes)
    llm.engine.scheduler.check_integrity()


def test_a_last_token_may_share_blocks_that_a_prompt_of_the_same_step_is_filling(tiny_llm):
    """The second prompt is the first's two full blocks and one token: a decode to the dispatcher, whose keys and values the
    first prompt is only now computing. The third, a fourth block later, must not lean on that decode."""
    first = list(range(20, 53))
    prompts = [first, [*first[:32], 7], [*first[:32], *range(100, 117)], [*first[:15], 9], [*first[:15], 9, 9]]
    llm = tiny_llm()
    equip(llm, [1, 4])
    # logprobs, not only tokens: in a random model the best token hardly depends on what attention reads
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=0)
    together = [g.outputs[0] for g in llm.generate(prompts, params)]
    alone = [tiny_llm(enable_prefix_caching=False).generate([p], params)[0].outputs[0] for p in prompts]
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.token_ids == theirs.token_ids
        for (mine,), (his,) in zip(ours.logprobs, theirs.logprobs, strict=True):
            assert mine.logprob == pytest.approx(his.logprob, abs=1e-5)


def test_the_smallest_bucket_that_fits(tiny_llm):
    llm = tiny_llm()
    counting = equip(llm, [1, 2, 8])
    answers(llm, PROMPTS[:1])
    assert set(counting.decodes) == {1}
    counting.decodes.clear()
    llm.generate([PROMPTS[0], PROMPTS[2], PROMPTS[3]], SamplingParams(temperature=0, max_tokens=5, ignore_eos=True))
    assert set(counting.decodes) == {8}


def test_padding_rows_touch_no_block_that_a_request_could_hold(tiny_llm):
    plain, padded = tiny_llm(), tiny_llm()
    equip(padded, [8])
    assert answers(plain, PROMPTS[:3]) == answers(padded, PROMPTS[:3])
    for a, b in zip(plain.engine.scheduler.kv.layers, padded.engine.scheduler.kv.layers, strict=True):
        torch.testing.assert_close(a[:-1], b[:-1], atol=1e-5, rtol=0)
        assert b[-1].any() and not a[-1].any(), "they do write: to the block that is nobody's"


def test_contexts_wider_than_the_graphs_run_eager(tiny_llm):
    llm = tiny_llm()
    counting = equip(llm, [1], max_width=2)
    assert answers(llm, [PROMPTS[2]]) == answers(tiny_llm(), [PROMPTS[2]])
    assert counting.decodes == []


def test_graphs_are_not_looked_for_where_another_attention_was_asked_for(make_decoder, monkeypatch, tmp_path):
    """They have an attention of their own inside."""
    looked = []
    monkeypatch.setattr(dispatch, "graphs_folder", lambda config, decoder: looked.append(config.attention) or tmp_path)
    for attention in ("torch", "sdpa"):
        decoder = make_decoder()
        assert find(EngineConfig(attention=attention), decoder) is decoder
    assert looked == ["sdpa"]
