"""How a step's tokens are laid out."""

from types import SimpleNamespace

from minillm.request import Request, SamplingParams
from minillm.runner import Runner
from minillm.scheduler import SchedulePlan


def request(first_token, num_tokens, computed, row):
    made = Request(
        str(row), list(range(first_token, first_token + num_tokens)), num_tokens, SamplingParams(), max_tokens=1, seed=0
    )
    made.num_computed_tokens, made.block_ids = computed, [row]
    return made


def test_single_tokens_then_new_prompts_then_chunks():
    """Each kind side by side and by cache row, whatever the order of the plan, so that a backend can take it in one call."""
    chunk, new, other_chunk, decode, other_new = (
        request(100, 6, 2, row=0), request(200, 3, 0, row=4), request(300, 5, 1, row=1), request(400, 4, 3, row=3),
        request(500, 2, 0, row=2),
    )  # fmt: skip
    plan = SchedulePlan()
    for each in (chunk, new, other_chunk, decode, other_new):
        plan.add(each, each.num_tokens - each.num_computed_tokens)
    batch = Runner(model=None, kv=SimpleNamespace(block_size=16)).prepare(plan)
    assert batch.token_ids.tolist() == [403, 500, 501, 200, 201, 202, 102, 103, 104, 105, 301, 302, 303, 304]
    assert batch.attention.num_decodes == 1
    assert batch.attention.seq_lens == [4, 2, 3, 6, 5]
    assert batch.requests == plan.requests, "logits are in the plan's order"
    assert batch.logit_rows.tolist() == [9, 5, 13, 0, 2]
