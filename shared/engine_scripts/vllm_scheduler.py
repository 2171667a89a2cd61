"""vLLM's own scheduler, stepped by hand: no model and no GPU, each sampled token is made up.

Runs in the environment of the engine `vllm` (shared/engines.py). Reads from standard input, as JSON:

    model                   a model's config.json; only its name and shapes are read
    block_size              tokens a block
    num_blocks              blocks of the pool, vLLM's null block (number 0, never handed out) included
    max_num_batched_tokens  tokens a step
    max_num_seqs, max_model_len
    max_steps               gives up after so many
    requests                [{"id", "arrives": step, "prompt": [[first, end], ...], "max_tokens"}]; a prompt is made of ranges

Prints {"version", "torch", "steps", "preemptions": {id: times}}. A step:

    scheduled    {id: tokens computed}, in the scheduler's order
    admitted     {id: tokens found in the prefix cache}, of requests that start or come back in this step
    preempted    ids put out in this step
    new_blocks   {id: block ids}: the whole table of an admitted request, what was added to the table of another
    free         blocks free after scheduling
    waiting      ids waiting after scheduling
    finished     ids that the step's tokens complete
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    VLLM_TARGET_DEVICE="cpu",  # else the CUDA build looks for a GPU
)

import torch
import vllm
from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager


def make_scheduler(job: dict, folder: Path) -> Scheduler:
    (folder / "config.json").write_text(json.dumps(job["model"]))
    max_model_len, block_size = job["max_model_len"], job["block_size"]
    model = ModelConfig(str(folder), dtype="float32", seed=0, max_model_len=max_model_len, skip_tokenizer_init=True)
    cache = CacheConfig(block_size=block_size, enable_prefix_caching=True)
    cache.num_gpu_blocks = job["num_blocks"]
    scheduling = SchedulerConfig(
        max_num_seqs=job["max_num_seqs"],
        max_num_batched_tokens=job["max_num_batched_tokens"],
        max_model_len=max_model_len,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        async_scheduling=False,  # a step's tokens are known before the next is planned
    )
    config = VllmConfig(model_config=model, cache_config=cache, scheduler_config=scheduling, device_config=DeviceConfig("cpu"))
    kv_heads = job["model"]["num_key_value_heads"]
    spec = FullAttentionSpec(block_size=block_size, num_kv_heads=kv_heads, head_size=64, dtype=torch.float32)
    pool = KVCacheConfig(num_blocks=job["num_blocks"], kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return Scheduler(
        vllm_config=config,
        kv_cache_config=pool,
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_size,
        hash_block_size=block_size,
        log_stats=True,
    )


def make_request(spec: dict, hasher) -> Request:
    prompt = [token for first, end in spec["prompt"] for token in range(first, end)]
    params = SamplingParams(max_tokens=spec["max_tokens"], ignore_eos=True, temperature=0)
    return Request(
        request_id=spec["id"], prompt_token_ids=prompt, sampling_params=params, pooling_params=None, block_hasher=hasher
    )


def table(scheduler: Scheduler, request_id: str) -> list[int]:
    return list(scheduler.kv_cache_manager.get_block_ids(request_id)[0])


def step(scheduler: Scheduler, tables: dict[str, list[int]], sample) -> dict:
    plan = scheduler.schedule()
    admitted = {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
    cached = plan.scheduled_cached_reqs
    admitted |= {i: n for i, n in zip(cached.req_ids, cached.num_computed_tokens, strict=True) if i in cached.resumed_req_ids}
    new_blocks = {}
    for i in plan.num_scheduled_tokens:
        known, now = ([] if i in admitted else tables.get(i, [])), table(scheduler, i)
        assert now[: len(known)] == known, f"the block table of {i} changed under it"
        tables[i] = now
        if now[len(known) :]:
            new_blocks[i] = now[len(known) :]
    row = {
        "scheduled": dict(plan.num_scheduled_tokens),
        "admitted": admitted,
        "preempted": sorted(plan.preempted_req_ids or ()),
        "new_blocks": new_blocks,
        "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        "waiting": [r.request_id for r in scheduler.waiting],
    }
    ids = list(plan.num_scheduled_tokens)
    requests = [scheduler.requests[i] for i in ids]  # update_from_output lets go of those that finish
    # schedule() has counted the step's tokens as computed already: a request with none left to compute yields a token
    sampled = [[sample(r)] if r.num_computed_tokens >= r.num_tokens else [] for r in requests]
    output = ModelRunnerOutput(req_ids=ids, req_id_to_index={i: k for k, i in enumerate(ids)}, sampled_token_ids=sampled)
    scheduler.update_from_output(plan, output)
    return row | {"finished": [r.request_id for r in requests if r.is_finished()]}


def main(job: dict) -> dict:
    init_none_hash(sha256)
    hasher = get_request_block_hasher(job["block_size"], sha256)
    requests = [make_request(spec, hasher) for spec in job["requests"]]
    made_up = {r.request_id: 40_000 + 1_000 * i for i, r in enumerate(requests)}  # nobody's prompt, nobody else's answer
    with tempfile.TemporaryDirectory() as folder:
        scheduler = make_scheduler(job, Path(folder))
    steps, tables, arrivals = [], {}, [spec["arrives"] for spec in job["requests"]]
    for now in range(job["max_steps"]):
        for request, arrives in zip(requests, arrivals, strict=True):
            if arrives == now:
                scheduler.add_request(request)
        steps.append(step(scheduler, tables, lambda r: made_up[r.request_id] + r.num_output_tokens))
        if all(r.is_finished() for r in requests):
            break
    return {
        "version": vllm.__version__,
        "torch": torch.__version__,
        "steps": steps,
        "preemptions": {r.request_id: r.num_preemptions for r in requests},
    }


if __name__ == "__main__":
    print("\n" + json.dumps(main(json.load(sys.stdin))))
