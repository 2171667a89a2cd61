"""The calculators' arithmetic is Python's: each function, and what each calculator makes of its inputs.

Run with `pytest -m browser`: the functions run in Chromium. How the elements are used is test_calculators.py's.
"""

import json
import math
import random
from pathlib import Path

import pytest

from shared import budget, cost, hardware, models, operators, roofline

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "docs" / "assets"
CASES = 200
MODELS = [models.load(name, allow_unverified=True) for name in models.names()]
MACHINES = [hardware.load(name, allow_unverified=True).ceilings("bf16") for name in hardware.names() if hardware.load(name).peaks]
DTYPES = list(budget.WEIGHT_BITS)


@pytest.fixture(scope="module")
def core(chromium, data):
    """calls = [(function, arguments), ...] -> what core.js answers: a value, or {"error": the message of what it throws}."""
    page = loaded(chromium, data)
    page.evaluate(
        """() => {
            const {core, tables} = window.course;
            const model = (x) => tables.models.find((m) => m.id === x.model);
            const real = (x) => (x && x.model ? model(x) : x && x.step ? core.Step(...x.step) : x);
            window.answer = ([name, args]) => {
                try { return core[name](...args.map(real)); } catch (e) { return {error: e.message}; }
            };
        }"""
    )
    yield lambda calls: page.evaluate("(calls) => calls.map(window.answer)", calls)
    page.close()


@pytest.fixture(scope="module")
def answers(chromium, data):
    """answers("memory", [inputs, ...]) -> what that calculator makes of each."""
    page = loaded(chromium, data)
    yield lambda name, cases: page.evaluate(f"(cases) => cases.map(window.course.answers.{name})", cases)
    page.close()


def loaded(chromium, data):
    """An empty page with the scripts of all calculators."""
    page = chromium.new_page()
    page.add_script_tag(content=data.script())
    for name in (*data.COMMON[1:], "memory", "roofline", "cost"):
        page.add_script_tag(path=ASSETS / f"js/calc/{name}.js")
    return page


def close(got, expected):
    """Equal to a relative 1e-9, all the way down."""
    if isinstance(expected, dict):
        return got.keys() == expected.keys() and all(close(got[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(got) == len(expected) and all(map(close, got, expected))
    if isinstance(expected, str):
        return got == expected
    return math.isclose(got, expected, rel_tol=1e-9, abs_tol=0)


def compare(core, cases):
    """cases: [(function, arguments for JavaScript, what Python says)]."""
    answers = core([[name, args] for name, args, _ in cases])
    wrong = [(case, got) for case, got in zip(cases, answers, strict=True) if not close(got, case[2])]
    assert not wrong, f"{len(wrong)} of {len(cases)} differ, first: {wrong[0]}"


def log_uniform(rng, low, high):
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def ref(model):
    return {"model": model.id}


def each_model(rng):
    """CASES models: every one of the table, then some again."""
    return MODELS + rng.choices(MODELS, k=CASES - len(MODELS))


@pytest.mark.parametrize("name, python", [
    ("parameters", budget.parameters),
    ("numParameters", budget.num_parameters),
    ("activeParameters", budget.active_parameters),
    ("linearParameters", budget.linear_parameters),
    ("kvElementsPerLayer", budget.kv_elements_per_layer),
    ("attentionParameters", budget.attention_parameters),
])  # fmt: skip
def test_counts_of_every_model_equal_python(core, name, python):
    compare(core, [(name, [ref(model)], python(model)) for model in MODELS])


def test_sizes_equal_python(core):
    rng, cases = random.Random(1), []
    for model in each_model(rng):
        dtype, tokens, size = rng.choice(DTYPES), log_uniform(rng, 1, 200_000), rng.choice([0.5, 1, 2, 4])
        cases += [
            ("weightBytes", [ref(model), dtype], budget.weight_bytes(model, dtype)),
            ("kvBytes", [ref(model), tokens, size], budget.kv_bytes(model, tokens, size)),
            ("nextTokenKvBytes", [ref(model), tokens, size], budget.next_token_kv_bytes(model, tokens, size)),
        ]
        if model.moe:
            cases.append(("expertParameters", [ref(model)], budget.expert_parameters(model)))
            cases.append(("expertsRead", [ref(model), tokens % 3000], operators.experts_read(model, tokens % 3000)))
    compare(core, cases)


def test_budgets_equal_python(core):
    rng, cases = random.Random(2), []
    for _ in range(CASES):
        shape = (rng.randint(1, 130), rng.randint(1, 128), rng.choice([64, 80, 128, 256]), rng.choice([0.5, 1, 2, 4]))
        per_token = budget.kv_bytes_per_token(*shape)
        memory, weights = rng.uniform(8e9, 300e9), rng.uniform(1e8, 300e9)
        overhead, share = rng.uniform(0, 4e9), rng.uniform(0.5, 1)
        room = budget.kv_token_budget(memory, weights, per_token, overhead_bytes=overhead, gpu_memory_utilization=share)
        length, block = log_uniform(rng, 1, 100_000), rng.choice([1, 8, 16, 32])
        keywords = {"overheadBytes": overhead, "gpuMemoryUtilization": share}
        cases += [
            ("kvBytesPerToken", list(shape), per_token),
            ("kvTokenBudget", [memory, weights, per_token, keywords], room),
            ("maxRequests", [room, length, block], budget.max_requests(room, length, block)),
        ]
    compare(core, cases)


def random_step(rng):
    new = 1 if rng.random() < 0.5 else log_uniform(rng, 1, 130_000)
    args = (log_uniform(rng, 1, 512), new, rng.choice([0, log_uniform(rng, 1, 130_000)]))
    keywords = {
        "logit_tokens": rng.choice([0, 1, new]),
        "weight_bits": rng.choice(list(budget.WEIGHT_BITS.values())),
        "kv_bits": rng.choice([4, 8, 16]),
        "other_bits": rng.choice([16, 32]),
    }
    script = {
        "step": [*args, {f"{name.split('_')[0]}{name.split('_')[1].capitalize()}": value for name, value in keywords.items()}]
    }
    return operators.Step(*args, **keywords), script


def test_operators_equal_python(core):
    rng, cases = random.Random(3), []
    for model in each_model(rng):
        step, script = random_step(rng)
        expected = [{"name": o.name, "flops": o.flops, "bytes": o.bytes} for o in operators.operators(model, step)]
        window = rng.choice([None, log_uniform(rng, 1, 5000)])
        cases += [
            ("operators", [ref(model), script], expected),
            ("attended", [script, window], operators.attended(step, window)),
            ("total", [expected], {"name": "total", **{k: sum(o[k] for o in expected) for k in ("flops", "bytes")}}),
        ]
    compare(core, cases)


def test_rooflines_equal_python(core):
    rng, cases = random.Random(4), []
    for model in each_model(rng):
        machine = rng.choice(MACHINES)
        peak, bandwidth = machine.peak_flops, machine.bandwidth
        script = {"peakFlops": peak, "bandwidth": bandwidth}
        flops, moved = rng.uniform(1e9, 1e14), rng.uniform(1e8, 1e12)
        tokens, seqs, bits = log_uniform(rng, 1, 130_000), log_uniform(rng, 1, 512), rng.choice([4, 8, 16])
        share = rng.uniform(0.1, 1)
        prefill = roofline.prefill_seconds(model, machine, tokens, efficiency=share, cached=seqs, weight_bits=bits)
        decode = roofline.decode_seconds(model, machine, tokens, num_seqs=seqs, efficiency=share, weight_bits=bits)
        keywords = {"efficiency": share, "weightBits": bits}
        cases += [
            ("ridgePoint", [peak, bandwidth], roofline.ridge_point(peak, bandwidth)),
            ("arithmeticIntensity", [flops, moved], roofline.arithmetic_intensity(flops, moved)),
            ("attainable", [flops / moved, peak, bandwidth], roofline.attainable(flops / moved, peak, bandwidth)),
            ("boundOf", [flops, moved, peak, bandwidth], roofline.bound_of(flops, moved, peak, bandwidth)),
            ("boundOf", [peak, bandwidth, peak, bandwidth], "compute"),  # exactly at the ridge
            ("prefillSeconds", [ref(model), script, tokens, {**keywords, "cached": seqs}], prefill),
            ("decodeSeconds", [ref(model), script, tokens, {**keywords, "numSeqs": seqs}], decode),
            ("decodeCeiling", [moved, bandwidth, flops], roofline.decode_ceiling(moved, bandwidth, flops)),
        ]
    compare(core, cases)


def test_costs_equal_python(core):
    rng, cases = random.Random(5), []
    for _ in range(CASES):
        prices = {"input_price": rng.uniform(0, 10), "cached_price": rng.uniform(0, 5), "output_price": rng.uniform(0, 50)}
        script = {f"{name.split('_')[0]}Price": price for name, price in prices.items()}
        prompt = log_uniform(rng, 1, 100_000)
        part, answer, thought = rng.randint(0, prompt), log_uniform(rng, 1, 8000), rng.randint(0, 5000)
        hourly, rate, hits, requests = rng.uniform(0.1, 100), rng.uniform(1, 1e5), rng.random(), rng.randint(0, 10**6)
        bot = cost.bot_cost(requests, prompt, part, answer, reasoning_tokens=thought, hit_rate=hits, **prices)
        cases += [
            ("costPerMillion", [hourly, rate], cost.cost_per_million(hourly, rate)),
            ("requestCost", [prompt, part, answer, script], cost.request_cost(prompt, part, answer, **prices)),
            ("botCost", [requests, prompt, part, answer, {**script, "reasoningTokens": thought, "hitRate": hits}], bot),
        ]
    compare(core, cases)


@pytest.mark.parametrize("name, args, says", [
    ("kvBytesPerToken", [0, 8, 128], "numLayers must be above zero"),
    ("kvTokenBudget", [1e9, 1e9, 1e5, {"gpuMemoryUtilization": 1.1}], "share above 0"),
    ("maxRequests", [-1, 10], "tokenBudget must not be negative"),
    ("weightBytes", [{"model": "llama-3.1-8b"}, "int3"], "no weight format"),
    ("expertParameters", [{"model": "llama-3.1-8b"}], "has no experts"),
    ("operators", [{"model": "llama-3.1-8b"}, {"step": [1, 1, 0, {"logitTokens": 2}]}], "cannot be more than newTokens"),
    ("attainable", [1, None, 1], "peakFlops must be above zero"),
    ("totalSeconds", [[], {}, {"efficiency": 0}], "share of the ceiling"),
    ("costPerMillion", [2, 0], "tokensPerS must be above zero"),
    ("requestCost", [10, 11, 1, {"inputPrice": 1, "cachedPrice": 1, "outputPrice": 1}], "cannot be more"),
    ("botCost", [1, 10, 5, 1, {"inputPrice": 1, "cachedPrice": 1, "outputPrice": 1, "hitRate": 2}], "between 0 and 1"),
])  # fmt: skip
def test_nonsense_is_refused_as_in_python(core, name, args, says):
    (answer,) = core([[name, args]])
    assert says in answer["error"]


def test_weight_formats_and_tables_are_pythons(chromium, data):
    page = loaded(chromium, data)
    assert page.evaluate("window.course.core.WEIGHT_BITS") == budget.WEIGHT_BITS
    tables = page.evaluate("window.course.tables")
    page.close()
    assert tables == json.loads(json.dumps(data.tables()))
    by_id = {entry["id"]: entry for entry in tables["accelerators"]}
    assert tuple(by_id) == hardware.names()
    assert by_id["rtx-4090"]["memory"]["value"] == hardware.load("rtx-4090").memory_bytes
    assert not by_id["a10g"]["memory"]["source"]["verified"]  # written from memory: the page must be able to say so
    flagged = {entry["id"] for entry in tables["models"] if set(entry["unverified"]) - {"statedContext"}}
    assert flagged == {"deepseek-v2"}


def compare_answers(answers, name, cases):
    """cases: [(inputs, what Python says)]; what JavaScript says may have more in it."""
    found = answers(name, [inputs for inputs, _ in cases])
    wrong = [
        (inputs, key, answer[key], expected[key])
        for (inputs, expected), answer in zip(cases, found, strict=True)
        for key in expected
        if not close(answer[key], expected[key])
    ]
    assert not wrong, f"{len(wrong)} differ, first: {wrong[0]}"


def test_memory_answers_equal_python(answers):
    rng, cases = random.Random(6), []
    gpus = [name for name in hardware.names() if "memory" in hardware.load(name).facts]
    for model in each_model(rng):
        gpu, dtype, bits = rng.choice(gpus), rng.choice(DTYPES), rng.choice([4, 8, 16])
        context, users, share = log_uniform(rng, 1, 200_000), log_uniform(rng, 1, 500), rng.randint(50, 100)
        overhead = rng.uniform(0, 5)
        memory = hardware.load(gpu, allow_unverified=True).memory_bytes
        weights = budget.weight_bytes(model, dtype)
        per_token = budget.kv_bytes(model, context, bits / 8) / context
        keywords = {"overhead_bytes": overhead * 1e9, "gpu_memory_utilization": share / 100}
        room = budget.kv_token_budget(memory, weights, per_token, **keywords)
        requests = budget.max_requests(room, context)
        inputs = {"model": model.id, "gpu": gpu, "weights": dtype, "kv": str(bits), "context": context, "users": users,
                  "share": share, "overhead": overhead}  # fmt: skip
        expected = {"memory": memory, "weights": weights, "perToken": per_token, "room": room, "requests": requests}
        cases.append((inputs, {**expected, "fits": users <= requests}))
    compare_answers(answers, "memory", cases)


FORMATS = {"bf16": (16, "bf16"), "w8": (8, "bf16"), "w4": (4.15625, "bf16"), "fp8": (8, "fp8"), "int8": (8, "int8")}


def test_roofline_answers_equal_python(answers):
    rng, cases = random.Random(7), []
    gpus = [hardware.load(name, allow_unverified=True) for name in hardware.names() if hardware.load(name).peaks]
    for model in each_model(rng):
        gpu = rng.choice(gpus)
        dtypes = {peak.dtype for peak in gpu.peaks if peak.accumulate in ("fp32", "int32")}
        form = rng.choice([name for name, (_, dtype) in FORMATS.items() if dtype in dtypes])
        bits, dtype = FORMATS[form]
        kv, share = rng.choice([4, 8, 16]), rng.randint(1, 100)
        batch, context = log_uniform(rng, 1, 1024), log_uniform(rng, 1, 130_000)
        linear, other = gpu.ceilings(dtype), gpu.ceilings("bf16")

        def seconds(*step, model=model, linear=linear, other=other, bits=bits, kv=kv, share=share):
            work = operators.operators(model, operators.Step(*step, weight_bits=bits, kv_bits=kv))
            layers = [o for o in work if o.name.endswith("_proj")]
            rest = [o for o in work if not o.name.endswith("_proj")]
            efficiency = share / 100
            return sum(roofline.total_seconds(part, on, efficiency=efficiency) for part, on in ((layers, linear), (rest, other)))

        prefill, decode = seconds(1, context), seconds(batch, 1, context)
        inputs = {"model": model.id, "gpu": gpu.id, "format": form, "kv": str(kv), "batch": batch, "context": context,
                  "efficiency": share}  # fmt: skip
        expected = {"prefillRate": context / prefill, "decodeRate": batch / decode}
        cases.append((inputs, {**expected, "ridge": roofline.ridge_point(linear.peak_flops, linear.bandwidth)}))
    compare_answers(answers, "roofline", cases)


def test_cost_answers_equal_python_and_add_up_to_the_hour(answers):
    rng, cases = random.Random(8), []
    for _ in range(CASES):
        v = {"price": rng.uniform(0.1, 50), "load": rng.randint(1, 100), "cached": rng.randint(0, 100)}
        v |= {"prefill": rng.uniform(100, 1e5), "decode": rng.uniform(10, 1e4)}
        v |= {"input": log_uniform(rng, 1, 1e5), "output": log_uniform(rng, 1, 1e4)}
        v |= {"inputprice": rng.uniform(0, 5), "cachedprice": rng.uniform(0, 1), "outputprice": rng.uniform(0.1, 20)}
        load, hits = v["load"] / 100, v["input"] * v["cached"] / 100
        read, written = (cost.cost_per_million(v["price"], v[rate]) / load for rate in ("prefill", "decode"))
        tokens = v["input"], hits, v["output"]
        own = cost.request_cost(*tokens, input_price=read, cached_price=0, output_price=written)
        names = {"input_price": v["inputprice"], "cached_price": v["cachedprice"], "output_price": v["outputprice"]}
        api = cost.request_cost(*tokens, **names)
        cases.append(
            (
                v,
                {
                    "input": read,
                    "output": written,
                    "own": own,
                    "api": api,
                    "perHour": v["price"] / own,
                    "breakEven": own * load / api,
                },
            )
        )
    compare_answers(answers, "cost", cases)
