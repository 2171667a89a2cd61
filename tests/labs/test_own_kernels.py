"""Every kernel of series C5, written by hand from the docstrings alone, in the place of a learner's: own_set/c5 beside this file.

They pass the checks, and then run a model together: `--mine` serves several requests with them, and their tokens are torch's.
"""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from safetensors.torch import save_file

from labs.kit.launches import launches
from labs.kit.own_parts import own_parts
from minillm.llm import LLM
from minillm.model.checkpoints.dummy import byte_tokenizer, random_weights
from minillm.model.checkpoints.folder import read_config
from minillm.parts import PARTS
from minillm.request import SamplingParams

SHAPE = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 128, "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "eos_token_id": 2,
}  # fmt: skip
LIMITS = {"dtype": "float32", "threads": 1, "max_num_seqs": 2, "max_num_batched_tokens": 32, "seed": 1}
TRITON = {"kernels": "triton", "attention": "triton"}
TORCH = {"kernels": "torch", "attention": "sdpa", "linear": "torch", "enforce_eager": True}
MATRICES = {"as loaded": {"linear": "triton"}, "int4": {"quantization": "int4"}}
# The set's kernels that run, by part. Not among them: long_row_kernel, of rows beyond 64 KiB, and sum_parts_kernel, of long sums.
KERNELS = {
    "kernels.rms_norm": {"rms_norm_kernel"},
    "kernels.add_rms_norm": {"add_rms_norm_kernel"},
    "kernels.silu_mul": {"silu_mul_kernel"},
    "kernels.rope": {"rope_kernel"},
    "kernels.flash_attention": {"flash_attention_kernel"},
    "kernels.paged_decode": {"paged_decode_kernel"},
    "kernels.argmax": {"argmax_kernel"},
    "kernels.sample": {"sample_kernel"},
    "kernels.softmax": {"whole_row_kernel"},
}
MULTIPLY = {
    "as loaded": {"kernels.gemm": {"gemm_kernel"}, "kernels.gemv": {"gemv_rows_kernel"}},
    "int4": {"kernels.w4a16": {"one_row_kernel", "tile_kernel"}},
}
NOT_ASKED = {"kv_write_kernel", "paged_attention_kernel"}  # no lab asks for these: minillm's own run
LONG = list(range(3, 43))  # two steps of 32 tokens
GREEDY = [LONG, [5, 9, 200], [*LONG[:34], 7]]  # two at once; the third waits, and finds two blocks of the first
DRAWN = [([8, 1, 250], {"logprobs": 2}), ([17] * 5, {"top_p": 0.9, "seed": 11}), ([40, 41], {"top_k": 20, "min_p": 0.01})]


@pytest.fixture(scope="module")
def checked(learner_of):
    """What `labs check c5` said to one who has done all of it."""
    with learner_of("c5") as said:
        yield said


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A two-layer Llama, its matrices sharpened: at the usual spread of random weights tokens hardly depend on the layers."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    (folder / "config.json").write_text(json.dumps(SHAPE))
    byte_tokenizer(SHAPE["vocab_size"]).save(str(folder / "tokenizer.json"))
    weights = random_weights(read_config(folder), seed=1)
    save_file({name: w * 12 if "proj" in name else w for name, w in weights}, folder / "model.safetensors")
    return str(folder)


def answers(llm):
    """Outputs of a greedy batch, then of a drawn one."""
    greedy = llm.generate(GREEDY, SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    rules = [SamplingParams(**{"temperature": 1.5, "seed": 4, "max_tokens": 4, "ignore_eos": True} | rule) for _, rule in DRAWN]
    return [each.outputs[0] for each in (*greedy, *llm.generate([prompt for prompt, _ in DRAWN], rules))]


def test_every_check_passes_with_them(checked):
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("matrices", MATRICES)
def test_together_they_say_what_torch_says(checked, folder, matrices):
    expected = answers(LLM(folder, **LIMITS, **TORCH | MATRICES[matrices] | {"linear": "torch"}))
    llm = LLM(folder, mine=True, **LIMITS, **TRITON, **MATRICES[matrices])
    kernels = KERNELS | MULTIPLY[matrices]
    assert set(llm.own_parts) == set(kernels)
    with launches() as launched:
        got = answers(llm)
    assert [each.token_ids for each in got] == [each.token_ids for each in expected]
    assert [each.num_cached_tokens for each in got] == [0, 0, 32, 0, 0, 0]
    logprobs = [[entry.logprob for token in each[len(GREEDY)].logprobs for entry in token] for each in (got, expected)]
    assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-4)
    files = {(each.kernel.fn.__code__.co_filename, each.kernel.fn.__name__) for each in launched}
    mine = {name for file, name in files if file.startswith(os.environ["LABS_ROOT"])}
    assert mine == set.union(*kernels.values())
    assert {name for _, name in files} - mine == NOT_ASKED


def test_every_part_that_a_lab_asks_for_runs(checked):
    asked = {part for part in own_parts() if PARTS[part].slot == "kernels"}
    assert asked == set(KERNELS).union(*MULTIPLY.values())


def test_generate_runs_them_as_the_checks_say(checked, folder):
    """A real process, by the command that `labs check` ends with."""
    line = re.search(r"The engine can run yours now: (minillm generate .*)", checked.stdout).group(1)
    words = ["--no-chat", "--dtype", "float32", "--threads", "1", "--temperature", "1.2", "--seed", "7", "--max-tokens", "8"]
    command = [sys.executable, "-P", "-c", "from minillm.cli import main; main()", *shlex.split(line)[1:], *words, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for part in KERNELS | MULTIPLY["int4"]:
        assert f"yours: {part}, " in done.stderr
    prompt = re.search('--prompt "(.*)"', line).group(1)
    llm = LLM(folder, dtype="float32", threads=1, **TORCH, quantization="int4")
    (expected,) = llm.generate([prompt], SamplingParams(temperature=1.2, seed=7, max_tokens=8))
    assert expected.text
    assert done.stdout == expected.text + "\n"
