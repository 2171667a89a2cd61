"""Checks every recorded run under results/ and prints it as a Markdown table: `python tools/results.py [FILE ...]`."""

import sys
from pathlib import Path

from shared.evidence import EvidenceError
from shared.results import RESULTS, load, table


def main(files: list[str]) -> int:
    paths = [Path(file) for file in files] or sorted(path for path in RESULTS.glob("*.json") if path.name != "schema.json")
    faults = 0
    for path in paths:
        try:
            run = load(path)
        except EvidenceError as e:
            print(f"error: {e}", file=sys.stderr)
            faults += 1
            continue
        print(f"**{run.title}** (`{run.command}`, {run.environment['date']})\n\n{table(run)}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
