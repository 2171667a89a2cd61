"""The parts of a step event that say what happened to requests. docs/events.md describes each field."""

from __future__ import annotations

import time
from collections.abc import Mapping

from minillm.request import Request, StepOutput
from minillm.scheduler import SchedulePlan

QUEUE_SHOWN = 16  # an event names so many waiting requests and counts the rest: a long queue must not slow a step


def kind_of(num_new_tokens: int, num_left: int) -> str:
    """decode: the one token left. prefill: all that is left, more than one. chunk: a part of what is left."""
    if num_left == 1:
        return "decode"
    return "prefill" if num_new_tokens == num_left else "chunk"


def scheduled_items(plan: SchedulePlan, outputs: list[StepOutput], preemptions: Mapping[str, int]) -> list[dict]:
    """What a step, booked already, computed for each request; counts are those before the step.

    preemptions: {request that ran before this step: its num_preemptions then}; whoever differs was admitted in this step.
    """
    sampled = {o.request.request_id: len(o.tokens) for o in outputs}
    items, now = [], time.monotonic()
    for request, num_new in zip(plan.requests, plan.num_new_tokens, strict=True):
        num_sampled = sampled.get(request.request_id, 0)
        computed, known = request.num_computed_tokens - num_new, request.num_tokens - num_sampled
        item = {
            "id": request.request_id,
            "kind": kind_of(num_new, known - computed),
            "num_new_tokens": num_new,
            "num_computed_tokens": computed,
            "num_tokens": known,
            "num_prompt_tokens": request.num_prompt_tokens,
            "num_sampled_tokens": num_sampled,
        }
        if preemptions.get(request.request_id) != request.num_preemptions:
            item["num_cached_tokens"] = computed
        if num_sampled and request.num_output_tokens == num_sampled:
            item["ttft_s"] = round(now - request.times.arrival, 6)
        items.append(item)
    return items


def finished_item(request: Request) -> dict:
    first, last = request.times.first_token, request.times.finished or time.monotonic()
    gaps = request.num_output_tokens - 1
    return {
        "id": request.request_id,
        "reason": str(request.finish_reason),
        "num_output_tokens": request.num_output_tokens,
        "tpot_s": round((last - first) / gaps, 6) if gaps > 0 and first is not None else None,
    }


def queue_head(waiting: list[Request]) -> dict:
    now = time.monotonic()
    head = [
        {
            "id": r.request_id,
            "since_arrival_s": round(now - r.times.arrival, 3),
            "num_tokens": r.num_tokens,
            "num_preemptions": r.num_preemptions,
        }
        for r in waiting[:QUEUE_SHOWN]
    ]
    return {"num_waiting": len(waiting), "head": head}
