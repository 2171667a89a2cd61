"""Many clients at once, a quarter of which vanish; bodies of every wrong kind. Everybody gets an answer or an error, and
nothing is left behind."""

import asyncio
import gc
import json
import random

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

NUM_CLIENTS = 200
ROUNDS = 3
MAX_PATIENCE = 12  # chunks that a client reads before it vanishes
MAX_GROWTH_BYTES = 150_000_000  # generous: allocators keep some; a leak of one answer's tokens or one body a client is more
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture
def server(chat_llm, serving):
    """A pool so small that requests are preempted: 40 blocks of 16 tokens among up to 16 running requests."""
    llm = chat_llm(
        max_num_seqs=16, max_model_len=512, kv_cache_memory_bytes=40 * 16 * 2 * 2 * 2 * 8 * 4, max_num_batched_tokens=128
    )
    assert llm.engine.scheduler.kv.num_blocks == 40
    with serving(llm.engine) as server:
        yield server


def body_of(i: int, rng: random.Random) -> tuple[str, dict]:
    fields = {"stream": True, "max_tokens": rng.randint(2, 60), "ignore_eos": True, "seed": i, "n": rng.choice([1, 1, 1, 2])}
    if i % 3 == 0 or i % 4 == 0:
        fields |= {"logprobs": True, "top_logprobs": 2}  # then every token is a chunk
    if i % 4 == 0:
        fields["max_tokens"] += MAX_PATIENCE
    text = "shared beginning " * rng.randint(0, 6) + str(i)
    return CHAT, {"messages": [{"role": "user", "content": text}], **fields}


async def client(http: httpx.AsyncClient, i: int) -> str:
    rng = random.Random(i)
    path, body = body_of(i, rng)
    vanishes, patience = i % 4 == 0, rng.randint(0, MAX_PATIENCE)
    finished = set()
    async with http.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        if vanishes and patience == 0:
            return "vanished"  # before its first token
        async for line in response.aiter_lines():
            if not line:
                continue
            if line == "data: [DONE]":
                assert finished == set(range(body["n"]))
                return "answered"
            chunk = json.loads(line.removeprefix("data: "))
            choice = chunk["choices"][0]
            if choice["finish_reason"]:
                assert choice["finish_reason"] == "length"
                finished.add(choice["index"])
            patience -= 1
            if vanishes and patience <= 0:
                return "vanished"
    return "cut"


async def storm(url: str) -> list[str]:
    limits = httpx.Limits(max_connections=NUM_CLIENTS)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
        return await asyncio.gather(*(client(http, i) for i in range(NUM_CLIENTS)))


def test_two_hundred_streams_of_which_a_quarter_vanishes(server):
    def memory() -> int:
        server.assert_all_freed()
        gc.collect()
        return psutil.Process().memory_info().rss

    ends = asyncio.run(storm(server.url))  # the first storm also warms caches up
    assert (ends.count("answered"), ends.count("vanished")) == (150, 50)
    before = memory()
    for _ in range(ROUNDS - 1):
        ends = asyncio.run(storm(server.url))
        assert (ends.count("answered"), ends.count("vanished")) == (150, 50)
    assert memory() - before < MAX_GROWTH_BYTES
    text = httpx.get(f"{server.url}/metrics").text
    counts = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
    assert counts["minillm:num_preemptions_total"] > 0
    assert counts["minillm:num_requests_running"] == counts["minillm:num_requests_waiting"] == 0


HI = [{"role": "user", "content": "hi"}]
MEGABYTE = "x y " * 250_000
ODD_BODIES = [
    (CHAT, {"messages": [{"role": "user", "content": MEGABYTE}]}, 400),
    (COMPLETIONS, {"prompt": MEGABYTE}, 400),
    (COMPLETIONS, {"prompt": [[5] * 300_000]}, 400),
    (COMPLETIONS, {"prompt": ["a"] * 200_000}, 400),
    (CHAT, {"messages": [*HI] * 20_000}, 400),
    (CHAT, {"messages": HI, "stop": ["s" * 500_000]}, 400),
    (CHAT, {"messages": HI, "user": MEGABYTE}, 200),
    (CHAT, {"messages": HI, "cache_salt": MEGABYTE}, 200),
    (CHAT, {"messages": HI, MEGABYTE: 1}, 400),
    (CHAT, {"messages": HI, "chat_template_kwargs": {"deep": [[[[[[]]]]]], "wide": MEGABYTE}}, 200),
    (CHAT, {"messages": HI, "max_tokens": 10**30}, 400),
    (CHAT, {"messages": HI, "max_tokens": -(10**30)}, 400),
    (CHAT, {"messages": HI, "min_tokens": 10**30}, 400),
    (CHAT, {"messages": HI, "n": -5}, 400),
    (CHAT, {"messages": HI, "n": 10**30}, 400),
    (CHAT, {"messages": HI, "seed": -(10**30)}, 400),
    (CHAT, {"messages": HI, "temperature": 10**300}, 200),
    (CHAT, {"messages": HI, "temperature": 10**400}, 400),
    (CHAT, {"messages": HI, "temperature": 1e-300}, 200),
    (CHAT, {"messages": HI, "top_k": -(10**30)}, 400),
    (CHAT, {"messages": HI, "repetition_penalty": 1e300}, 200),
    (CHAT, {"messages": HI, "presence_penalty": -1e300}, 400),
    (CHAT, {"messages": HI, "logit_bias": {"999999999": 1}}, 400),
    (CHAT, {"messages": HI, "logit_bias": {str(t): -100 for t in range(300)}}, 200),
    (CHAT, {"messages": HI, "stop_token_ids": [2**31 - 1]}, None),
    (CHAT, {"messages": HI, "top_logprobs": -(10**30), "logprobs": True}, 400),
    (CHAT, {"messages": HI, "priority": 10**30}, 400),
    (CHAT, {"messages": {"role": "user"}}, 400),
    (CHAT, {"messages": [[[[]]]]}, 400),
    (CHAT, [HI], 400),
    ("/tokenize", {"prompt": MEGABYTE}, 200),
    ("/tokenize", {"messages": [{"role": "user", "content": MEGABYTE}]}, 200),
    ("/detokenize", {"tokens": [5] * 300_000}, 200),
    ("/detokenize", {"tokens": [10**30]}, 400),
]
RAW_BODIES = [b"{", b"\x00" * 1000, b"[" * 100_000, b'{"messages": ' + b'{"a": ' * 50_000, b'{"prompt": "\xff"}', b"NaN", b"null"]


async def oddities(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:

        async def odd(path, body, expected):
            if isinstance(body, dict) and path.startswith("/v1"):
                body = {"max_tokens": 3} | body
            response = await http.post(path, json=body)
            assert response.status_code == expected or (expected is None and response.status_code in (200, 400)), response.text
            check(response)

        async def raw(content):
            response = await http.post(CHAT, content=content, headers={"content-type": "application/json"})
            assert response.status_code == 400
            check(response)

        def check(response):
            if response.status_code != 200:
                assert len(response.json()["error"]["message"]) < 1100

        neighbours = [client(http, i) for i in range(1, 24, 2)]
        ends, *_ = await asyncio.gather(asyncio.gather(*neighbours), *(odd(*case) for case in ODD_BODIES), *map(raw, RAW_BODIES))
        assert set(ends) == {"answered"}


def test_odd_bodies_beside_good_neighbours(server):
    asyncio.run(oddities(server.url))
    server.assert_all_freed()
