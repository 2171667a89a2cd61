"""Running checks for the command line: the same pytest, the same plugin, and so the same answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from labs.kit.catalog import ROOT, LabModule
from labs.kit.errors import LabError

# -P keeps the current folder off sys.path, where `import kernels` must find nothing
PYTEST = (sys.executable, "-P", "-c", "import sys, pytest; sys.exit(pytest.main())")

# nbval only costs its start-up here
PLUGINS = ("-p", "labs.kit.plugin", "-p", "no:nbval")


def run_checks(modules: Sequence[LabModule], solutions: bool = False) -> int:
    """Run the checks of these labs in a process of their own, with its output shown; pytest's exit status.

    0: all pass; 1: some do not, or are not attempted. Raises LabError for a lab without checks.
    """
    for module in modules:
        if not module.checks.is_file():
            raise LabError(f"{module.path} has no checks: {module.checks.name} is missing; `git restore` brings it back")
    files = [str(module.checks) for module in modules]
    return subprocess.run([*PYTEST, *files, *PLUGINS, *(["--solutions"] if solutions else [])], cwd=ROOT, check=False).returncode
