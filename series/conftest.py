"""How `pytest --nbval` re-runs the notebooks: offline and seeded as tools/notebooks.py does, with one thread as every test."""

import os

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "ignore:IProgress not found",
    "TOKENIZERS_PARALLELISM": "false",
}

# Not compared: pictures, which differ with a machine's fonts, and evidence at full precision, whose text is compared as shown.
UNCOMPARED = ("image/svg+xml", "application/vnd.minillm.evidence+json")


def pytest_collectstart(collector):
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += UNCOMPARED
