"""Our kernels and minillm on one GPU, in less than six minutes: `make gpu`.

    python benchmarks/gpu.py                    everything, to results/gpu-<card>-<date>.json
    python benchmarks/gpu.py --quick            a minute: only whether the kernels are right
    python benchmarks/gpu.py --only speed --out /tmp/speed.json
    python benchmarks/gpu.py --dry-run          no GPU: tiny shapes, Triton's interpreter, nothing is measured or saved

Four sections. ceilings: what the card's memory and tensor cores reach. correctness: every kernel against the same in plain torch
in float32, and the engine's tokens. speed: kernels beside torch's own and beside the ceilings. engine: minillm with a model of
Llama-3.1-8B's shape and random weights within 24 GB. Nothing is downloaded. Each section has its time and runs in processes of
its own: what fails is recorded in a line, the rest goes on, and the file is written after each section. Leave the card alone
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from on_gpu.process import Found, run_section
from on_gpu.sections import PLANS, QUICK_SECONDS, Plan

from shared.evidence import EvidenceError

REHEARSAL_SECONDS = 600.0  # of a section: the interpreter is slow, and machines without a GPU are too


def main() -> int:
    args = parse()
    if args.worker:
        return work(args)
    if not args.dry_run and not has_gpu():
        print("error: this needs an NVIDIA GPU and a torch built for CUDA; --dry-run rehearses it without one", file=sys.stderr)
        return 1
    try:
        found = run(args)
    except (OSError, EvidenceError) as e:
        print(f"error: the results could not be written: {e}", file=sys.stderr)
        return 1
    failed = sum(len(piece.failed) for piece in found.values())
    return 1 if failed else 0


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true", help="correctness only, in about a minute")
    p.add_argument("--only", choices=[plan.name for plan in PLANS], help="one section; shares of ceilings need that one too")
    p.add_argument("--out", type=Path, help="where to write; otherwise results/gpu-<card>-<date>.json")
    p.add_argument("--dry-run", action="store_true", help="run everything once on the CPU; measures and saves nothing")
    p.add_argument("--worker", help=argparse.SUPPRESS)  # what follows is between this script and its own processes
    p.add_argument("--part", default="", help=argparse.SUPPRESS)
    p.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    p.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    p.add_argument("--skip", default="[]", help=argparse.SUPPRESS)
    p.add_argument("--ceilings", default="null", help=argparse.SUPPRESS)
    return p.parse_args(arguments)


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available() and torch.version.cuda is not None


def plans(args: argparse.Namespace) -> list[Plan]:
    """The card is always asked who it is; measuring its ceilings is left out where nothing is held against them."""
    only = "correctness" if args.quick else args.only
    chosen = [plan for plan in PLANS if plan.name == "ceilings" or only in (None, plan.name)]
    if args.dry_run:  # one small shape stands for all
        parts = {"correctness": ("llama-3.1-8b.bfloat16", "engine")}
        return [replace(plan, seconds=REHEARSAL_SECONDS, parts=parts.get(plan.name, plan.parts)) for plan in chosen]
    return [replace(plan, seconds=min(plan.seconds, QUICK_SECONDS)) for plan in chosen] if args.quick else chosen


def run(args: argparse.Namespace) -> dict[str, Found]:
    """Section by section; prints what each brought, and but for a rehearsal writes the file after it."""
    found: dict[str, Found] = {}
    facts: dict = {}
    machine = path = None
    for plan in plans(args):
        began = time.monotonic()

        def command(part, report, seconds, skip, plan=plan):
            unneeded = ["ceilings"] if args.quick or args.only == "correctness" else []  # a case of the section ceilings
            own = ["--worker", plan.name, "--part", part, "--report", str(report), "--seconds", str(seconds)]
            own += ["--skip", json.dumps([*skip, *unneeded]), "--ceilings", json.dumps(facts.get("ceilings"))]
            return [sys.executable, str(Path(__file__).resolve()), *own, *(["--dry-run"] if args.dry_run else [])]

        piece = found[plan.name] = run_section(command, plan.parts, plan.seconds)
        facts.update(piece.facts)
        tell(plan, piece, time.monotonic() - began, args.dry_run)
        if args.dry_run:
            continue
        from on_gpu import record

        if machine is None:
            card = facts.get("card", {"name": "an unknown card", "memory_bytes": None})
            machine = record.environment(card)
            path = args.out or record.default_path(card["name"], machine["date"])
        record.write(path, " ".join(["python benchmarks/gpu.py", *sys.argv[1:]]), found, machine)
    if path is not None:
        print(f"\nwritten: {os.path.relpath(path)}; python tools/results.py {os.path.relpath(path)} prints it as a table")
    else:
        print("\ndry run on a CPU: nothing was measured, nothing was saved")
    return found


def tell(plan: Plan, piece: Found, seconds: float, dry_run: bool) -> None:
    took = "" if dry_run else f" in {seconds:.0f} s"
    print(f"{plan.name}: {len(piece.ended) - len(set(piece.failed) & set(piece.ended))} cases ran{took}", flush=True)
    for name, cause in piece.failed.items():
        print(f"  failed: {name}: {cause}")
    if piece.cut:
        print(f"  no time for {', '.join(piece.cut)}")
    for row in piece.rows:
        if not dry_run and row["label"] == "computed":  # shares and ratios: what one looks for first
            print(f"  {row['title']}: {row['value']:.4g} {row['unit']}", flush=True)


def work(args: argparse.Namespace) -> int:
    from on_gpu import worker
    from on_gpu.sections import section

    setting = worker.Setting(args.part, args.dry_run, json.loads(args.ceilings))
    return worker.work(section(args.worker), setting, args.report, args.seconds, json.loads(args.skip))


if __name__ == "__main__":
    sys.exit(main())
