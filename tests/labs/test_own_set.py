"""Every answer of series C2, written by hand from the docstrings alone, in the place of a learner's: own_set/ beside this file.

A second implementation of the engine's parts, by somebody who had not seen the first. It shows that the docstrings say enough,
that the checks let another solution pass, and that `--mine` makes an engine of it that serves the real model.
"""

import functools
import re
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import pytest

from labs.kit.catalog import LABS, find_modules
from labs.kit.conformance import checks
from labs.kit.own_parts import own_parts
from minillm.attention.torch_ref import TorchAttention
from minillm.config import EngineConfig
from minillm.kv.paged import PagedKV
from minillm.llm import LLM
from minillm.mine.choose import choose
from minillm.request import SamplingParams

OWN_SET = Path(__file__).parent / "own_set"
SERIES = ("c2", "c5")  # test_own_kernels.py runs the latter's answers
SELECT = {"attention": "torch", "scheduler": "continuous"}  # the learner's run only where they are asked for
OPS = ("ops.rms_norm", "ops.rope", "ops.swiglu", "ops.gqa_attention")
ANYWHERE = (*OPS, "scheduler.continuous", "sampling.pipeline", "text.stream", "text.stop")
PAGED, CONTIGUOUS = ("kv.blocks", "kv.prefix"), ("kv.contiguous",)
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
COUNT = [{"role": "user", "content": "Count from one to ten, please. 🙂"}]
GREEDY = SamplingParams(temperature=0, max_tokens=12)
SEEDED = SamplingParams(temperature=0.8, top_p=0.9, min_p=0.02, seed=7, max_tokens=8, stop=("France",))


def exercises(root, series="c2"):
    """What is asked of a learner: name, reference and part by the exercise's key."""
    modules = [module for module in find_modules(root) if module.path.startswith(f"{series}/")]
    assert not [module.problem for module in modules if module.problem]
    return {e.key: (e.reference, e.part) for module in modules for e in module.exercises}


@pytest.fixture(scope="module")
def learner(learner_of):
    """What `labs check c2` said to one who has done all of it."""
    with learner_of("c2") as said:
        yield said


@pytest.fixture(scope="module")
def mine(learner):
    """Every part of the set as an engine gets it: guarded."""
    chosen = [choose(True, EngineConfig(**SELECT, kv=kv)) for kv in ("paged", "contiguous")]
    assert [set(choice.names) for choice in chosen] == [{*ANYWHERE, *PAGED}, {*ANYWHERE, *CONTIGUOUS}]
    return {**chosen[0].objects, **chosen[1].objects}


@pytest.mark.parametrize("series", SERIES)
def test_the_set_answers_every_exercise(series):
    assert exercises(OWN_SET, series) == exercises(LABS, series) != {}


def test_every_check_passes_with_it(learner):
    assert learner.returncode == 0, learner.stdout + learner.stderr
    assert f"{len(exercises(LABS))} exercises: {len(exercises(LABS))} passing" in learner.stdout


def test_every_part_that_a_lab_asks_for_runs(mine):
    assert set(mine) == {part for _, part in exercises(LABS).values() if part}


# What an engine makes of the parts: slot.implementation, and how it is put together from them.
WHOLE = {
    "kv.contiguous": lambda mine: mine["kv.contiguous"],
    "kv.paged": lambda mine: functools.partial(PagedKV, make_pool=mine["kv.blocks"], find_prefix=mine["kv.prefix"]),
    "attention.torch": lambda mine: functools.partial(TorchAttention, mine["ops.gqa_attention"]),
    "scheduler.continuous": lambda mine: mine["scheduler.continuous"],
    "sampling.pipeline": lambda mine: mine["sampling.pipeline"],
    "text.stream": lambda mine: mine["text.stream"],
    "text.stop": lambda mine: mine["text.stop"],
}


@pytest.mark.parametrize("part, check", [(p, c) for p in WHOLE for c in checks(p)], ids=lambda x: getattr(x, "__name__", x))
def test_conforms(mine, part, check):
    check(WHOLE[part](mine))


@pytest.fixture(scope="module")
def said(learner):
    """What the reference engine says."""
    llm = LLM("smollm2-135m", dtype="float32", threads=1, max_model_len=512, enforce_eager=True)
    assert llm.own_parts == ()
    return [llm.chat(*asked).text for asked in ((CAPITAL, GREEDY), (COUNT, GREEDY), (COUNT, SEEDED))]


@pytest.fixture
def server(learner):
    """`minillm serve --mine`, as a learner starts it: (address, what it wrote until it was ready)."""
    command = [sys.executable, "-P", "-c", "from minillm.cli import main; main()", "serve", "smollm2-135m", "--dtype", "float32",
               "--threads", "1", "--max-model-len", "512", "--port", "0", "--mine", "--attention", "torch",
               "--scheduler", "continuous"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "Ctrl-C" in line:
                    break
            text = "".join(lines)
            address = re.search(r"http://127\.0\.0\.1:\d+", text)
            assert address, text
            yield address.group(), text
        finally:
            process.kill()


def test_it_serves_smollm2(said, server):
    """The smoke test: real process, real port, real model; blocks and prefix search are the learner's, and so is all the rest."""
    url, log = server
    for part in (*ANYWHERE, *PAGED):
        assert f"yours: {part}, " in log
    health = httpx.get(f"{url}/health").json()  # the page shows these
    assert set(health["own_parts"]) == {*ANYWHERE, *PAGED}
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)

    def chat(messages, params, **more):
        extra = {"min_p": params.min_p}
        return client.chat.completions.create(
            model="smollm2-135m", messages=messages, temperature=params.temperature, top_p=params.top_p, seed=params.seed,
            max_tokens=params.max_tokens, stop=list(params.stop) or None, extra_body=extra, **more,
        )  # fmt: skip

    *chunks, last = chat(CAPITAL, GREEDY, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == said[0]
    assert "Paris" in said[0]
    assert chunks[-1].choices[0].finish_reason == "stop"
    again = chat(CAPITAL, GREEDY)
    assert again.choices[0].message.content == said[0]
    assert again.usage.prompt_tokens_details.cached_tokens > 0, "match_prefix finds the first time's blocks"
    assert again.usage.completion_tokens == last.usage.completion_tokens
    beside = chat(COUNT, GREEDY, stream=True)  # two at once
    assert chat(COUNT, SEEDED).choices[0].message.content == said[2]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in beside) == said[1]


def test_the_contiguous_cache_serves_it_too(said, learner):
    llm = LLM("smollm2-135m", mine=True, dtype="float32", threads=1, max_model_len=512, max_num_seqs=2, kv="contiguous", **SELECT)
    assert set(llm.own_parts) == {*ANYWHERE, *CONTIGUOUS}
    assert llm.chat(CAPITAL, GREEDY).text == said[0]
    llm.engine.scheduler.kv.check_integrity()


@pytest.mark.parametrize("series", SERIES)
def test_each_file_says_what_it_is(series):
    assert own_parts(OWN_SET)
    for file in (OWN_SET / series).glob("m*.py"):
        assert "from its docstrings alone" in file.read_text(encoding="utf-8").splitlines()[0], file.name
