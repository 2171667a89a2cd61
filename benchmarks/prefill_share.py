"""Where the 16-request run of peers.py spends its time: in steps that compute prompts, or in steps that only decode.

    python benchmarks/prefill_share.py --quantization int8 --save results/prefill_share.json

Each repeat uses fresh prompts, so that the prefix cache has nothing to reuse. Run it with nothing else going on.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from workload import mixed

from minillm import LLM, SamplingParams
from shared.environment import capture
from shared.evidence import measured
from shared.results import Run, save, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--quantization", choices=("int8", "int4"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", type=Path, help="where to record the run, as JSON")
    args = parser.parse_args()
    llm = LLM(args.model, dtype="bfloat16", quantization=args.quantization, max_model_len=1024)
    run_once(llm, seed=100)  # warm-up
    runs = [run_once(llm, seed=101 + i) for i in range(args.repeats)]
    environment, work = capture(), mixed()
    dtype = f"bfloat16, weights {args.quantization or 'unquantized'}"
    context = {"environment": environment, "checkpoint": args.model, "dtype": dtype, "concurrency": 16}
    lengths = {"input_tokens": work.num_input_tokens, "output_tokens": work.num_output_tokens}
    titles = {"prefill_s": "steps with prompts in them", "decode_s": "steps of decodes alone"}
    evidence = [measured(k, [r[k] for r in runs], "s", title=title, **context, **lengths) for k, title in titles.items()]
    command = " ".join(["python benchmarks/prefill_share.py", *sys.argv[1:]])
    title = "16 requests at once: prompts and decodes"
    print(table(save(args.save, title, command, evidence) if args.save else Run(title, command, environment, tuple(evidence))))


def run_once(llm: LLM, seed: int) -> dict[str, float]:
    work, engine = mixed(seed=seed), llm.engine
    for prompt, length in zip(work.prompts, work.output_lens, strict=True):
        params = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
        engine.add(engine.make_requests(prompt, params)[0])
    seconds = {"prefill_s": 0.0, "decode_s": 0.0}
    while engine.has_unfinished:
        waiting = engine.scheduler.waiting or any(r.num_tokens - r.num_computed_tokens > 1 for r in engine.scheduler.running)
        started = time.perf_counter()
        engine.step_text()
        seconds["prefill_s" if waiting else "decode_s"] += time.perf_counter() - started
    return seconds


if __name__ == "__main__":
    main()
