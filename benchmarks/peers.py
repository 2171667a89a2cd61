"""minillm beside other engines: the same model, the same work, turn by turn in one run.

    python benchmarks/peers.py --repeats 3 --save results/peers.json

Each turn is a process of its own (its load time and peak memory are its own too), and engines take turns, so that a slow
minute of the machine falls on all of them. Run it with nothing else going on.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from engines import ENGINES
from workload import Workload, mixed, single

GB = 1e9


def main() -> None:
    args = parse()
    if args.worker:
        print(json.dumps(measure(args.worker, Path(args.folder), args.dtype, args.threads)))
        return
    from minillm.model.checkpoints import pull
    from shared.environment import usable_cores

    folder, threads = pull(args.model), args.threads or max(1, round(usable_cores()))
    turns: dict[str, list[dict]] = {name: [] for name in args.engines}
    for repeat in range(args.repeats):
        for name in args.engines:
            turns[name].append(take_turn(name, folder, args.dtype, threads))
            print(f"{repeat + 1}/{args.repeats} {name:14}", {k: round(v, 2) for k, v in turns[name][-1].items()}, flush=True)
    report(args, threads, turns)


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="smollm2-135m")
    p.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    p.add_argument("--dtype", default="bfloat16")
    p.add_argument("--threads", type=int)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--save", type=Path, help="where to record the run, as JSON")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    p.add_argument("--folder", help=argparse.SUPPRESS)
    return p.parse_args()


def take_turn(name: str, folder: Path, dtype: str, threads: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--worker", name, "--folder", str(folder), "--dtype", dtype, "--threads", str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed (its error is above); leave it out with --engines")
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, folder: Path, dtype: str, threads: int) -> dict[str, float]:
    started = time.perf_counter()
    generate = ENGINES[name](folder, dtype, threads)
    loaded = time.perf_counter()
    one, many = single(), mixed()
    generate(one.prompts, [4])  # the first call of a process pays for what later ones find ready
    first_token_s = timed(generate, Workload("first", one.prompts, [1]))
    decode_s = timed(generate, one) - first_token_s
    return {
        "load_s": loaded - started,
        "decode_tokens_per_s": (one.num_output_tokens - 1) / decode_s,
        "throughput_tokens_per_s": many.num_output_tokens / timed(generate, many),
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB,
    }


def timed(generate, work: Workload) -> float:
    started = time.perf_counter()
    answers = generate(work.prompts, work.output_lens)
    seconds = time.perf_counter() - started
    lengths = [len(a) for a in answers]
    if lengths != work.output_lens:
        sys.exit(f"{work.name}: asked for {work.output_lens} tokens, got {lengths}: the times would not compare")
    return seconds


def report(args: argparse.Namespace, threads: int, turns: dict[str, list[dict]]) -> None:
    from shared.environment import capture
    from shared.evidence import computed, measured
    from shared.results import Run, save, table

    environment = {**capture(), "threads": threads}
    one, many = single(), mixed()
    shapes = {
        "load_s": ("load", "s", None, None, None),
        "decode_tokens_per_s": ("decode, one request", "tokens/s", one.num_input_tokens, one.num_output_tokens, 1),
        "throughput_tokens_per_s": ("output, 16 requests at once", "tokens/s", many.num_input_tokens, many.num_output_tokens, 16),
        "peak_memory_gb": ("peak memory of the process", "GB", many.num_input_tokens, many.num_output_tokens, 16),
    }
    evidence = []
    for key, (title, unit, inputs, outputs, concurrency) in shapes.items():
        for name, samples in turns.items():
            context = {"checkpoint": args.model, "dtype": args.dtype, "threads": threads, "title": f"{name}: {title}"}
            lengths = {"input_tokens": inputs, "output_tokens": outputs, "concurrency": concurrency}
            values = [turn[key] for turn in samples]
            evidence.append(measured(f"{name}.{key}", values, unit, environment=environment, **context, **lengths))
    others = [name for name in turns if name != "minillm"] if "minillm" in turns else []
    for name in others:
        for key in ("decode_tokens_per_s", "throughput_tokens_per_s"):
            ratios = [ours[key] / theirs[key] for ours, theirs in zip(turns["minillm"], turns[name], strict=True)]
            context = {
                "title": f"minillm / {name}: {shapes[key][0]}",
                "min": min(ratios),
                "max": max(ratios),
                "repeats": len(ratios),
            }
            inputs = {"minillm": [t[key] for t in turns["minillm"]], name: [t[key] for t in turns[name]]}
            formula = "median over turns of minillm / other"
            entry = computed(f"minillm_over_{name}.{key}", median(ratios), "×", formula=formula, inputs=inputs, **context)
            evidence.append(entry)
    command = " ".join(["python benchmarks/peers.py", *sys.argv[1:]])
    title = f"{args.model}, {args.dtype}, {threads} threads: minillm beside its peers"
    print(table(save(args.save, title, command, evidence) if args.save else Run(title, command, environment, tuple(evidence))))


if __name__ == "__main__":
    main()
