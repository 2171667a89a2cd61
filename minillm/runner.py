"""From a plan to logits: the flat batch, and one forward pass over it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from minillm.attention.base import AttentionMetadata
from minillm.kv.base import KVCache
from minillm.model.decoder import Decoder
from minillm.request import Request
from minillm.sampling.logprobs import top_logprobs
from minillm.scheduler import SchedulePlan

LOGPROB_ROWS = 256  # prompt tokens whose logits stand in memory at once: a whole prompt's can be larger than the model


@dataclass
class PromptRows:
    """Tokens of one prompt whose logits are wanted too: `prompt_logprobs`."""

    request: Request
    first_row: int  # into T
    targets: list[int]  # the prompt token that follows each of them, whose log-probability is asked for


@dataclass
class Batch:
    """One step's tokens of all requests, end to end, without padding: T tokens, S of which yield logits."""

    token_ids: Tensor  # [T] int64
    positions: Tensor  # [T] int64, of each token in its own sequence
    attention: AttentionMetadata
    logit_rows: Tensor  # [S] int64 into T: the last token of each request whose known tokens end here
    requests: list[Request]  # [S]: whose logits those are, in the plan's order
    chunk_rows: Tensor  # [C] int64 into T: the last token of each request with known tokens left, which yields no logits
    chunks: list[Request]  # [C]: whose those are
    prompt_rows: list[PromptRows]
    broken: list[Request] = field(default_factory=list)  # of `chunks`, those whose numbers failed: `forward` says


class Runner:
    def __init__(self, model: Decoder, kv: KVCache, device: torch.device | str = "cpu"):
        self.model, self.kv, self.device = model, kv, torch.device(device)

    def prepare(self, plan: SchedulePlan) -> Batch:
        """Lay the plan's tokens out flat: single tokens, then prompts from their first token on, then chunks, because backends
        take each kind in one call; within a kind by cache row."""

        def place(i: int) -> tuple[bool, bool, int]:
            request = plan.requests[i]
            return plan.num_new_tokens[i] > 1, request.num_computed_tokens > 0, request.block_ids[0]

        order = sorted(range(len(plan.requests)), key=place)
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts, seq_lens, last_row, prompt_rows = [0], [], {}, []
        for i in order:
            request, n = plan.requests[i], plan.num_new_tokens[i]
            start, stop = request.num_computed_tokens, request.num_computed_tokens + n
            token_ids += request.token_ids[start:stop]
            positions += range(start, stop)
            slots += self._slots(request, start, stop)
            starts.append(starts[-1] + n)
            seq_lens.append(stop)
            last_row[i] = starts[-1] - 1
            if request.params.prompt_logprobs is not None:
                prompt_rows += _prompt_rows(request, start, stop, starts[-2])
        yielding = [i for i in range(len(plan.requests)) if plan.yields_token(i)]
        chunks = [i for i in range(len(plan.requests)) if not plan.yields_token(i)]
        attention = AttentionMetadata(
            query_start_loc=starts,
            seq_lens=seq_lens,
            block_tables=self._tensor(_pad([plan.requests[i].block_ids for i in order])),
            slot_mapping=self._tensor(slots),
            block_size=self.kv.block_size,
            num_decodes=sum(n == 1 for n in plan.num_new_tokens),
        )
        return Batch(
            token_ids=self._tensor(token_ids),
            positions=self._tensor(positions),
            attention=attention,
            logit_rows=self._tensor([last_row[i] for i in yielding]),
            requests=[plan.requests[i] for i in yielding],
            chunk_rows=self._tensor([last_row[i] for i in chunks]),
            chunks=[plan.requests[i] for i in chunks],
            prompt_rows=prompt_rows,
        )

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        """Returns logits [S, vocab] float32; writes the batch's keys and values into the cache, the log-probabilities of prompt
        tokens into the requests that ask for them, and into batch.broken which chunks hold NaN or infinity."""
        hidden = self.model(batch.token_ids, batch.positions, self.kv.layers, batch.attention)
        if batch.chunks:
            # Everything before a chunk's last token flows into it. Nobody sees its logits, and the request may be gone before
            # anybody does, its blocks another's.
            is_finite = hidden[batch.chunk_rows].isfinite().all(-1).tolist()
            batch.broken = [request for request, ok in zip(batch.chunks, is_finite, strict=True) if not ok]
        for rows in batch.prompt_rows:
            self._note_prompt_logprobs(rows, hidden)
        return self.model.logits(hidden[batch.logit_rows])

    def _note_prompt_logprobs(self, rows: PromptRows, hidden: Tensor) -> None:
        request = rows.request
        for i in range(0, len(rows.targets), LOGPROB_ROWS):
            targets = rows.targets[i : i + LOGPROB_ROWS]
            first = rows.first_row + i
            logits = self.model.logits(hidden[first : first + len(targets)])
            request.prompt_logprobs += top_logprobs(logits, targets, request.params.prompt_logprobs)

    def _slots(self, request: Request, start: int, stop: int) -> list[int]:
        size, blocks = self.kv.block_size, request.block_ids
        return [blocks[p // size] * size + p % size for p in range(start, stop)]

    def _tensor(self, values: list) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


def _prompt_rows(request: Request, start: int, stop: int, first_row: int) -> list[PromptRows]:
    """What tokens start to stop of a request, from first_row of the batch on, add to its prompt's logprobs.

    Position p predicts prompt token p + 1, whose logprobs stand at index p. After a preemption the first ones are known.
    """
    first, last = max(start, len(request.prompt_logprobs)), min(stop, request.num_prompt_tokens - 1)
    targets = request.token_ids[first + 1 : last + 1]
    return [PromptRows(request, first_row + first - start, targets)] if targets else []


def _pad(rows: list[list[int]]) -> list[list[int]]:
    width = max(map(len, rows))
    # with its own last block: masked places are read too, and a weight of 0 does not keep another sequence's NaN out
    return [row + row[-1:] * (width - len(row)) for row in rows]
