"""minillm beside other engines: the same model, the same work, turn by turn in one run.

    python benchmarks/peers.py --repeats 3 --save results/peers.json
    python benchmarks/peers.py --entries minillm:int8 minillm:int8:eager llama.cpp:q8_0

Each turn is a process of its own (its load time and peak memory are its own too), and entries take turns, so that a slow minute
of the machine falls on all of them. All get the same token ids, the same number of threads and this process's environment, and
must give exactly as many tokens as asked. Engines that are not installed are named as absent; `make engines NAME=...` installs
one. Run it with nothing else going on.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

from entries import DEFAULT, Entry, prepare, take_turn
from report import TITLES, evidence, order, tables
from workload import Workload, mixed, single

from shared.engines import ENGINES, EngineError


def main() -> int:
    from minillm.errors import MinillmError

    args = parse()
    try:
        return compare(args)
    except (EngineError, MinillmError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="smollm2-135m")
    p.add_argument(
        "--entries", nargs="+", default=list(DEFAULT), metavar="ENGINE:PRECISION", help=f"default: {' '.join(DEFAULT)}"
    )
    p.add_argument("--threads", type=int, help="of every engine; default: the CPU quota of this process")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--small", action="store_true", help="a few short requests: whether it runs, not how fast")
    p.add_argument("--save", type=Path, help="where to record the run, as JSON")
    return p.parse_args()


def compare(args: argparse.Namespace) -> int:
    from shared.environment import capture, usable_cores
    from shared.results import save

    entries = list(dict.fromkeys(Entry.parse(text) for text in args.entries))
    absent = [entry for entry in entries if not entry.is_here]
    for entry in absent:
        print(f"absent: {entry} (install with `{ENGINES[entry.engine].command}`)")
    present = [entry for entry in entries if entry not in absent]
    if not present:
        raise EngineError("none of the engines asked for is here")
    threads = args.threads or max(1, round(usable_cores()))
    one, many = (single(32, 32), mixed(4, 8, 24)) if args.small else (single(), mixed())
    environment = {**capture(), "threads": threads, "glibc_tunables": os.environ.get("GLIBC_TUNABLES")}
    environment["absent"] = [str(entry) for entry in absent]
    turns, failed = run(present, args.model, threads, args.repeats, one, many)
    if not turns:
        raise EngineError("every entry failed")
    print("\n" + tables(turns))
    if args.save:
        environment["failed"] = failed
        title = f"{args.model}, {threads} threads: minillm beside its peers"
        command = " ".join(["python benchmarks/peers.py", *sys.argv[1:]])
        save(args.save, title, command, evidence(turns, args.model, one, many, environment), environment)
    return 1 if failed else 0


def run(present: list[Entry], model: str, threads: int, repeats: int, one: Workload, many: Workload):
    """(entry -> its turns, entry -> why it was dropped). An entry that fails once is dropped, loudly; the others go on."""
    turns: dict[Entry, list[dict]] = {entry: [] for entry in present}
    jobs, failed = {}, {}
    for round_number in range(-1, repeats):  # round -1 makes the model files
        for entry in order(present, round_number):
            if str(entry) in failed:
                continue
            try:
                if round_number < 0:
                    jobs[entry] = {**prepare(entry, model, threads), "single": asdict(one), "mixed": asdict(many)}
                    continue
                turns[entry].append(take_turn(entry, jobs[entry]))
            except EngineError as e:
                failed[str(entry)] = str(e)
                print(f"dropped: {entry}: {e}", file=sys.stderr, flush=True)
                continue
            figures = ", ".join(f"{title} {turns[entry][-1][key]:.3g} {unit}" for key, (title, unit) in TITLES.items())
            print(f"{round_number + 1}/{repeats} {entry!s:18} {figures}", flush=True)
    return {entry: samples for entry, samples in turns.items() if str(entry) not in failed}, failed


if __name__ == "__main__":
    sys.exit(main())
