"""A model small enough to run in a check, with and without a cache. Its weights are random: it proves equalities, no speeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from labs.kit.conformance.attention import dense_attention
from labs.kit.conformance.requests import make_request
from minillm.attention.base import Attend, AttentionBackend, AttentionMetadata
from minillm.attention.torch_ref import TorchAttention
from minillm.config import ModelConfig
from minillm.kv.base import KVCache
from minillm.model.checkpoints.dummy import random_weights
from minillm.model.decoder import Decoder
from minillm.request import SampledToken
from minillm.runner import Runner
from minillm.scheduler import Scheduler, SchedulerConfig

TINY = ModelConfig(
    "llama", vocab_size=61, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4,
    max_position_embeddings=128, tie_word_embeddings=True, torch_dtype="float32",
)  # fmt: skip


def tiny_model(attention: AttentionBackend | None = None) -> Decoder:
    """A two-layer Llama in float32, always with the same weights. attention: None for minillm's readable backend."""
    model = Decoder(TINY, attention or TorchAttention())
    model.load_weights(_sharpened(random_weights(TINY, seed=0)))
    return model


def recompute(token_ids: Sequence[int]) -> Tensor:
    """Logits [vocab] float32 for the token after token_ids, from all of them at once and without any cache."""
    model, count = tiny_model(_WholeSequence()), len(token_ids)
    meta = AttentionMetadata([0, count], [count], torch.zeros(1, 1, dtype=torch.int64), torch.arange(count), count, 0)
    with torch.inference_mode():
        hidden = model(torch.tensor(token_ids), torch.arange(count), [None] * TINY.num_layers, meta)
        return model.logits(hidden[-1:])[0]


@dataclass
class Generated:
    """One request's tokens, prompt and answer, and the logits [vocab] from which each answer token was the largest."""

    num_prompt_tokens: int
    token_ids: list[int]
    logits: list[Tensor]


def generate(
    kv: KVCache, prompts: Sequence[Sequence[int]], max_tokens: Sequence[int], num_running: int, budget: int
) -> list[Generated]:
    """Serve prompts greedily with minillm's scheduler and runner over this cache.

    num_running: requests in one step; budget: tokens in one step. Raises AssertionError where requests are never done.
    """
    scheduler = Scheduler(kv, SchedulerConfig(num_running, budget, watermark=0.0))
    runner = Runner(tiny_model(), kv)
    requests = [make_request(prompt, count) for prompt, count in zip(prompts, max_tokens, strict=True)]
    answers = {r.request_id: Generated(r.num_prompt_tokens, r.token_ids, []) for r in requests}
    for request in requests:
        request.eos_token_ids = frozenset()
        scheduler.add(request)
    for _ in range(sum(map(len, prompts)) + sum(max_tokens) + 1):  # each step computes at least one token
        plan = scheduler.schedule()
        if not plan:
            break
        batch = runner.prepare(plan)
        logits = runner.forward(batch)
        for request, row in zip(batch.requests, logits, strict=True):
            answers[request.request_id].logits.append(row.clone())
        scheduler.update(plan, [SampledToken(int(row.argmax())) for row in logits])
    undone = [r.request_id for r in requests if not r.is_finished]
    assert not undone, f"{len(undone)} of {len(requests)} requests are never done; {kv.num_free} of {kv.num_blocks} blocks free"
    return list(answers.values())


class _WholeSequence:
    """Attention from its definition, over a sequence that is given whole. It has no cache to read from."""

    def plan(self, meta: AttentionMetadata, scale: float, sliding_window: int | None = None) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor, cache: None) -> Tensor:
            return dense_attention(q, k, v, scale, sliding_window).to(q.dtype)

        return attend


def _sharpened(weights: Iterable[tuple[str, Tensor]]) -> Iterable[tuple[str, Tensor]]:
    """At the usual 0.02 a random model's best token hardly depends on what attention reads, and a check would see little."""
    for name, tensor in weights:
        yield name, tensor * 12 if "self_attn" in name else tensor
