"""`minillm plan`: the numbers, the advice, and the picture."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minillm.errors import ConfigError
from minillm.plan import Wish, make_plan
from minillm.plan_view import WIDTH, lines
from shared import budget, hardware, models

LLAMA = Wish("llama-3.1-8b", "rtx-4090", context=5_000, users=8)
ENV = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "NO_COLOR": "1", "COLUMNS": "80"}


def command(*args):
    run = [sys.executable, "-c", "from minillm.cli import main; main()", "plan", *args]
    return subprocess.run(run, capture_output=True, text=True, env=ENV, timeout=60)


def text(wish):
    return "\n".join(line.plain for line in lines(make_plan(wish)))


def test_the_8b_and_its_int4_twin_on_24_gb():
    bf16, int4 = make_plan(LLAMA), make_plan(dataclasses.replace(LLAMA, dtype="int4"))
    assert (bf16.fits, bf16.max_users, bf16.kv_cache_tokens) == (True, 9, 48_901)
    assert (int4.fits, int4.max_users, int4.kv_cache_tokens) == (True, 25, 127_733)
    assert sum(bf16.weights_by_component.values()) == bf16.budget.weights == budget.weight_bytes(models.load("llama-3.1-8b"))
    assert sum(int4.weights_by_component.values()) == pytest.approx(int4.budget.weights)
    assert bf16.advice == ()


def test_max_context_is_the_longest_that_fits():
    plan = make_plan(LLAMA)
    at_most = dataclasses.replace(LLAMA, context=plan.max_context)
    assert make_plan(at_most).fits and not make_plan(dataclasses.replace(at_most, context=plan.max_context + 1)).fits
    with_images = make_plan(dataclasses.replace(LLAMA, image_tokens=1000))
    assert with_images.max_context == plan.max_context - 1000
    assert make_plan(dataclasses.replace(LLAMA, users=1, dtype="int4", kv_cache_dtype="fp8")).max_context == 131_072


@pytest.mark.parametrize(
    "wish",
    [
        dataclasses.replace(LLAMA, context=40_000, users=2),
        Wish("llama-3.1-70b", "h100-sxm", context=8_000, users=8),
        Wish("gemma-3-27b", "rtx-4090", context=8_000, users=4),
        Wish("smollm2-1.7b", "l4", dtype="fp32", context=8_000, users=20),
    ],
    ids=lambda wish: wish.model,
)
def test_what_is_advised_fits(wish):
    plan = make_plan(wish)
    assert not plan.fits and len(plan.advice) >= 2
    for line in plan.advice:
        flags = dict(re.findall(r"--([a-z-]+) (\S+)", line.split(":")[0]))
        changes = {name.replace("-", "_"): int(value) if value.isdigit() else value for name, value in flags.items()}
        assert changes and make_plan(dataclasses.replace(wish, **changes)).fits, line


def test_a_model_too_large_for_any_card():
    plan = make_plan(Wish("kimi-k2", "h100-sxm", users=4))
    assert plan.max_users == plan.max_context == 0 and plan.advice[-1].startswith("no single card")
    assert any("all experts" in note for note in plan.notes)


def test_every_model_on_every_card_of_the_tables():
    for model in models.names():
        for gpu in hardware.names():
            if "memory" in hardware.load(gpu).facts:
                plan = make_plan(Wish(model, gpu, context=1_000))
                assert sum(plan.budget) == pytest.approx(plan.memory)
                assert list(lines(plan))


def test_what_nobody_looked_up_is_said():
    notes = make_plan(Wish("deepseek-v2", "a10g")).notes
    assert any("unverified" in note and "A10G" in note for note in notes)
    assert any("unverified" in note and "deepseek-v2" in note for note in notes)
    assert make_plan(LLAMA).notes == ()
    assert "made for" in make_plan(Wish("llama-2-7b", "h200", context=8_000)).notes[0]
    assert "--max-num-seqs" in make_plan(Wish("smollm2-135m", "h200", context=100, users=300)).notes[0]


def test_adapters_images_and_formats_cost_what_they_should():
    base = make_plan(LLAMA)
    assert base.kv_cache_tokens - make_plan(dataclasses.replace(LLAMA, lora_adapters=2)).kv_cache_tokens == 2 * 640
    assert make_plan(dataclasses.replace(LLAMA, kv_cache_dtype="fp8")).kv_bytes_per_user == base.kv_bytes_per_user / 2
    assert make_plan(dataclasses.replace(LLAMA, image_tokens=16)).kv_bytes_per_user == base.kv_bytes_per_user + 16 * 131_072
    fp32 = make_plan(Wish("smollm2-135m", "rtx-4090", dtype="fp32"))
    assert (fp32.wish.cache_dtype, fp32.budget.weights) == ("fp32", 538_060_032)
    assert make_plan(Wish("gemma-3-4b", "rtx-4090")).kv_cache_tokens is None  # a token's price depends on its place


def test_the_picture():
    shown = text(LLAMA)
    bar = shown.splitlines()[3]
    assert len(bar) == WIDTH and set(bar) == set("█▓▒#+·")
    assert bar.count("█") == round(WIDTH * 16.06 / 25.757) and "fits: room for 9 users" in shown
    too_much = text(dataclasses.replace(LLAMA, context=40_000, users=2))
    assert "|" in too_much.splitlines()[3] and "4.08 GB are missing" in too_much
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize(
    "changes, mentions",
    [
        ({"model": "gpt-5"}, "llama-3.1-8b"),
        ({"gpu": "rtx-6000"}, "rtx-4090"),
        ({"gpu": "xeon-8480-x2"}, "memory"),
        ({"dtype": "int3"}, "int4"),
        ({"kv_cache_dtype": "int4"}, "fp8"),
        ({"users": 0}, "--users"),
        ({"context": -1}, "--context"),
        ({"image_tokens": -1}, "--image-tokens"),
        ({"gpu_memory_utilization": 92}, "--gpu-memory-utilization"),
        ({"model": "mixtral-8x7b", "lora_adapters": 1}, "--lora-adapters"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(changes, mentions):
    with pytest.raises(ConfigError, match=mentions):
        make_plan(dataclasses.replace(LLAMA, **changes))


def test_the_command():
    args = ("--model", "llama-3.1-8b", "--gpu", "rtx-4090", "--dtype", "bf16", "--context", "5000", "--users", "8")
    done = command(*args)
    assert done.returncode == 0 and done.stdout.rstrip() == text(LLAMA) and not done.stderr
    raw = json.loads(command(*args, "--json").stdout)
    assert raw["fits"] and raw["max_users"] == 9 and raw["label"] == "computed"
    assert sum(raw["budget"].values()) == pytest.approx(raw["memory"])
    assert command(*args[:-1], "80").returncode == 1
    wrong = command(*args[:1], "nope", *args[2:])
    assert (
        wrong.returncode == 1 and wrong.stderr.startswith("error: there is no model 'nope'") and "Traceback" not in wrong.stderr
    )
