"""Where one engine step's time goes: schedule, prepare, forward, sample, update, text.

    python benchmarks/step_profile.py --save results/step_profile.json

Two cases: 16 requests running, all decoding; and the same with 1,000 more waiting. Cases take turns, so that a slow minute of
the machine falls on both. Run it with nothing else going on.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

STAGES = ("schedule", "prepare", "forward", "sample", "update", "text")
INPUT_TOKENS, RUNNING, WAITING = 128, 16, 1000
FORWARD = "forward"


class Stopwatch:
    """Seconds spent in named calls, summed over one step."""

    def __init__(self):
        self.seconds: dict[str, float] = defaultdict(float)

    def timed(self, stage: str, call):
        def wrapper(*args, **kwargs):
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[stage] += time.perf_counter() - began

        return wrapper

    def watch(self, engine) -> None:
        """Put a timer around each stage of this engine's step."""
        scheduler, runner = engine.scheduler, engine.runner
        scheduler.schedule = self.timed("schedule", scheduler.schedule)
        scheduler.update = self.timed("update", scheduler.update)
        runner.prepare = self.timed("prepare", runner.prepare)
        runner.forward = self.timed("forward", runner.forward)
        engine.sampler = self.timed("sample", engine.sampler)
        engine.output.process = self.timed("text", engine.output.process)


def main() -> None:
    args = parse()
    from minillm.llm import LLM

    llm = LLM(args.model, dtype=args.dtype, threads=args.threads, quantization=args.quantization, max_num_seqs=RUNNING)
    watch = Stopwatch()
    watch.watch(llm.engine)
    cases: dict[str, list[dict[str, float]]] = {"idle_queue": [], "long_queue": []}
    for turn in range(args.turns):
        for name, waiting in (("idle_queue", 0), ("long_queue", WAITING)):
            cases[name] += steps(llm.engine, watch, waiting, args.steps, seed=turn)
            print(
                f"turn {turn + 1}/{args.turns} {name}: {1e3 * median(s['step'] for s in cases[name]):.2f} ms a step", flush=True
            )
    report(args, llm, cases)


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="smollm2-135m")
    p.add_argument("--dtype", default="auto")
    p.add_argument("--quantization", choices=("int8", "int4"))
    p.add_argument("--threads", type=int)
    p.add_argument("--steps", type=int, default=20, help="measured steps a turn and case")
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--save", type=Path, help="where to record the run, as JSON")
    return p.parse_args()


def steps(engine, watch: Stopwatch, waiting: int, count: int, seed: int) -> list[dict[str, float]]:
    """Seconds of each stage and of the whole, for `count` steps in which all RUNNING requests decode."""
    from minillm.request import SamplingParams

    rng = random.Random(seed)
    params = SamplingParams(temperature=0, max_tokens=count + 64, ignore_eos=True)
    for _ in range(RUNNING + waiting):
        (request,) = engine.make_requests([rng.randrange(1000, 40000) for _ in range(INPUT_TOKENS)], params)
        engine.add(request)
    try:
        while not (len(engine.scheduler.running) == RUNNING and all(r.num_output_tokens > 2 for r in engine.scheduler.running)):
            engine.step_text()
        return [one_step(engine, watch) for _ in range(count)]
    finally:
        engine.abort([r.request_id for r in (*engine.scheduler.running, *engine.scheduler.waiting)])


def one_step(engine, watch: Stopwatch) -> dict[str, float]:
    watch.seconds.clear()
    began = time.perf_counter()
    outputs = engine.step_text()
    seconds = {"step": time.perf_counter() - began} | {stage: watch.seconds[stage] for stage in STAGES}
    if len(outputs) != RUNNING or any(len(o.token_ids) != 1 for o in outputs):
        sys.exit(f"{len(outputs)} requests got a token in one step, not {RUNNING}: this is no decode step of all")
    return seconds | {"rest": seconds["step"] - sum(seconds[stage] for stage in STAGES)}


def report(args: argparse.Namespace, llm, cases: dict[str, list[dict[str, float]]]) -> None:
    from shared.environment import capture
    from shared.evidence import computed, measured
    from shared.results import Run, save, table

    environment = capture()
    dtype = str(llm.engine.runner.model.dtype).removeprefix("torch.")
    context = {
        "checkpoint": args.model,
        "dtype": args.quantization or dtype,
        "input_tokens": INPUT_TOKENS,
        "output_tokens": args.steps,
        "concurrency": RUNNING,
    }
    evidence = []
    for name, samples in cases.items():
        waiting = WAITING if name == "long_queue" else 0
        for stage in ("step", *STAGES, "rest"):
            title = f"{stage}, {RUNNING} running, {waiting} waiting"
            values = [1e3 * s[stage] for s in samples]
            evidence.append(measured(f"{name}.{stage}_ms", values, "ms", environment=environment, title=title, **context))
        outside = {
            "ms": [1e3 * (s["step"] - s[FORWARD]) for s in samples],
            "%": [100 * (s["step"] - s[FORWARD]) / s["step"] for s in samples],
        }
        for (unit, values), suffix in zip(outside.items(), ("ms", "percent"), strict=True):
            title = f"outside the forward, {RUNNING} running, {waiting} waiting"
            entry = measured(f"{name}.outside_{suffix}", values, unit, environment=environment, title=title, **context)
            evidence.append(entry)
    idle, long = (median(s["step"] - s[FORWARD] for s in cases[name]) for name in ("idle_queue", "long_queue"))
    inputs = {"idle_queue_s": idle, "long_queue_s": long}
    title = f"outside the forward with {WAITING} waiting / with none"
    evidence.append(computed("long_over_idle", long / idle, "×", formula="ratio of medians", inputs=inputs, title=title))
    command = " ".join(["python benchmarks/step_profile.py", *sys.argv[1:]])
    title = f"{args.model}, {context['dtype']}: one engine step, stage by stage"
    print(table(save(args.save, title, command, evidence) if args.save else Run(title, command, environment, tuple(evidence))))


if __name__ == "__main__":
    main()
