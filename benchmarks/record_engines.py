"""Records what other engines' own scheduler and cache do with a small trace, for those who have not installed them.

    make engines NAME=vllm; make engines NAME=sglang
    python benchmarks/record_engines.py                  # both: results/vllm_scheduler.json and results/sglang_radix.json
    python benchmarks/record_engines.py vllm_scheduler

Counts, not speeds: the answers are the same on any machine. shared/recordings.py reads them.
"""

from __future__ import annotations

import sys
from typing import Any

from shared.engines import EngineError, run_script
from shared.environment import capture
from shared.evidence import Evidence, measured
from shared.recordings import SCRIPTS
from shared.results import RESULTS, save, table

SMOLLM2 = {  # the shapes of SmolLM2-135M; the scheduler reads no weights
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
}
SYSTEM = [100, 148]  # 48 tokens, three blocks, that A, B and D begin with


def request(name: str, arrives: int, max_tokens: int, *prompt: list[int]) -> dict[str, Any]:
    return {"id": name, "arrives": arrives, "prompt": list(prompt), "max_tokens": max_tokens}


# 20 blocks of 16 tokens are too few for what comes: A is cut into chunks, B and D find A's beginning in the cache, E and then D
# must give way, D finds its own blocks again when it returns and E does not, F finds C's prompt while C still runs.
SCHEDULER = {
    "model": SMOLLM2,
    "block_size": 16,
    "num_blocks": 21,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "max_model_len": 512,
    "max_steps": 120,
    "requests": [
        request("A", 0, 24, SYSTEM, [200, 302]),
        request("B", 0, 24, SYSTEM, [400, 410]),
        request("C", 1, 30, [500, 540]),
        request("D", 3, 28, SYSTEM, [600, 640]),
        request("E", 4, 20, [700, 733]),
        request("F", 20, 6, [500, 540], [800, 803]),
    ],
}

INSTRUCTIONS, TASK, PLAN = [1000, 1040], [2000, 2012], [2012, 2024]
SEARCH, SEARCHED, CODE, CODED = [3000, 3016], [3016, 3024], [4000, 4010], [4010, 4030]


def start(name: str, *tokens: list[int]) -> dict[str, Any]:
    return {"op": "start", "id": name, "tokens": list(tokens)}


def finish(name: str, *tokens: list[int]) -> dict[str, Any]:
    return {"op": "finish", "id": name, "tokens": list(tokens)}


# An agent plans, sends two helpers off from its plan, and goes on with what they found; somebody else has the same instructions.
RADIX = {
    "page_size": 1,
    "operations": [
        start("planner", INSTRUCTIONS, TASK),
        finish("planner", INSTRUCTIONS, TASK, PLAN),
        start("search", INSTRUCTIONS, TASK, PLAN, SEARCH),
        start("code", INSTRUCTIONS, TASK, PLAN, CODE),
        finish("search", INSTRUCTIONS, TASK, PLAN, SEARCH, SEARCHED),
        start("other", INSTRUCTIONS, [5000, 5020]),
        finish("other", INSTRUCTIONS, [5000, 5030]),
        {"op": "evict", "num_tokens": 20},
        {"op": "evict", "num_tokens": 100},
        finish("code", INSTRUCTIONS, TASK, PLAN, CODE, CODED),
        start("planner again", INSTRUCTIONS, TASK, PLAN, SEARCH, SEARCHED, CODE, CODED),
        finish("planner again", INSTRUCTIONS, TASK, PLAN, SEARCH, SEARCHED, CODE, CODED, [6000, 6010]),
        {"op": "evict", "num_tokens": 25},
        start("late", INSTRUCTIONS, TASK, PLAN, CODE, CODED),
        finish("late", INSTRUCTIONS, TASK, PLAN, CODE, CODED, [7000, 7004]),
    ],
}


def size(ranges: list[list[int]]) -> int:
    return sum(end - first for first, end in ranges)


def scheduler_counts(data: dict) -> dict[str, tuple[int, str, str]]:
    steps = data["steps"]
    return {
        "steps": (len(steps), "steps", "Steps until all requests are done"),
        "computed_tokens": (sum(n for s in steps for n in s["scheduled"].values()), "tokens", "Tokens computed"),
        "cached_tokens": (sum(n for s in steps for n in s["admitted"].values()), "tokens", "Tokens found in the prefix cache"),
        "preemptions": (sum(data["preemptions"].values()), "preemptions", "Requests put out"),
    }


def radix_counts(data: dict) -> dict[str, tuple[int, str, str]]:
    steps = data["steps"]
    return {
        "operations": (len(steps), "operations", "Operations"),
        "matched_tokens": (sum(s.get("matched", 0) for s in steps), "tokens", "Prompt tokens found in the tree"),
        "evicted_tokens": (sum(s.get("evicted", 0) for s in steps), "tokens", "Tokens evicted"),
        "peak_tokens": (max(s["total"] for s in steps), "tokens", "Tokens in the tree, at most"),
    }


def record_scheduler() -> None:
    requests = SCHEDULER["requests"]
    lengths = [size(r["prompt"]) for r in requests], [r["max_tokens"] for r in requests]
    record("vllm_scheduler", "vllm", SCHEDULER, scheduler_counts, "vLLM's scheduler, six requests step by step", *lengths)


def record_radix() -> None:
    prompts = [size(o["tokens"]) for o in RADIX["operations"] if o["op"] == "start"]
    record("sglang_radix", "sglang", RADIX, radix_counts, "SGLang's radix cache, an agent's tree", prompts, None)


def record(name: str, engine: str, payload: dict, counts, title: str, input_tokens: list[int], output_tokens) -> None:
    data = run_script(engine, SCRIPTS / f"{name}.py", payload, timeout_s=600)
    shared = {
        "environment": capture(),
        "checkpoint": None,  # no weights: nothing is computed
        "dtype": None,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "concurrency": len(input_tokens),
        "engine": f"{engine} {data['version']}, torch {data['torch']}",
    }
    kept = {"engine": engine, "version": data["version"], "payload": payload, "data": data}
    entries: list[Evidence] = []
    for key, (value, unit, what) in counts(data).items():
        held = {} if entries else {"recording": kept}
        entries.append(measured(key, value, unit, title=what, **shared, **held))
    run = save(RESULTS / f"{name}.json", title, f"python benchmarks/record_engines.py {name}", entries)
    print(f"{title}\n\n{table(run)}\n")


RECORDINGS = {"vllm_scheduler": record_scheduler, "sglang_radix": record_radix}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in RECORDINGS]
    if unknown:
        print(f"error: there is no recording {unknown[0]!r}; choose of {', '.join(RECORDINGS)}", file=sys.stderr)
        return 2
    try:
        for name in names or RECORDINGS:
            RECORDINGS[name]()
    except EngineError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
