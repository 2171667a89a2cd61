"""minillm: the reference engine of the inference engineering course. `from minillm import LLM, SamplingParams`."""

from importlib import import_module

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__"]

_HOME = {"LLM": "minillm.llm", "SamplingParams": "minillm.request"}


def __getattr__(name: str):
    # torch takes seconds to import: `minillm --help` must not wait for it
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'minillm' has no attribute {name!r}")
