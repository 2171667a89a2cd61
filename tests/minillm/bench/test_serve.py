"""`bench serve` against servers that behave in known ways."""

import json
import math

import pytest
from starlette.responses import JSONResponse

from minillm.bench.client import BenchError
from minillm.bench.report import details, table
from minillm.bench.serve import ServeOptions, run


def bench(server, **options):
    return run(ServeOptions(**{"base_url": server.url, "show_progress": False, "random_input_len": 4, **options}))


def slow(records, latency, limit=1.0) -> int:
    return sum(latency(r).e2el >= limit for r in records)


STALL_S, NORMAL_S = 2.0, 0.002


def stalls_once(i, body):
    return STALL_S if i == 21 else NORMAL_S  # request 0 is the ready check


def test_a_stall_is_one_slow_answer_to_a_closed_loop(fake_server):
    result, records = bench(fake_server(stalls_once), num_prompts=100, max_concurrency=1)
    assert result["loop"] == "closed" and result["completed"] == 100
    assert slow(records, lambda r: r.sojourn()) == 1
    assert result["max_concurrent_requests"] == 1
    assert all(r.scheduled == r.sent for r in records)


@pytest.mark.parametrize("max_concurrency", [None, 1])
def test_a_stall_is_everybody_s_wait_in_an_open_loop(fake_server, max_concurrency):
    """40 requests fall due in the stall's first second, and each of them waits another one, in the server or in the client."""
    options = dict(num_prompts=120, request_rate=40.0, max_concurrency=max_concurrency)
    result, records = bench(fake_server(stalls_once), **options)
    assert result["completed"] == 120
    assert slow(records, lambda r: r.sojourn()) >= 25
    assert result["p99_e2el_ms"] > 1000
    if max_concurrency == 1:  # the server never saw the queue
        assert slow(records, lambda r: r.service()) == 1
        assert result["p99_client_queue_ms"] > 1000
    else:
        assert result["max_concurrent_requests"] >= 25


def test_arrivals_do_not_wait_for_answers(fake_server):
    result, records = bench(fake_server(lambda i, body: 0.05), num_prompts=20, request_rate=200.0, burstiness=1000.0)
    assert [r.scheduled for r in records] == pytest.approx([(i + 1) / 200 for i in range(20)], abs=0.004)
    assert all(r.sent >= r.scheduled for r in records)
    assert result["request_rate"] == 200.0


def test_a_ramp_s_requests_come_ever_faster(fake_server):
    """Due, if arrivals are all but even, when the gaps of 1 / rate have passed; an open loop, also with a concurrency."""
    ramp = dict(ramp_up_strategy="exponential", ramp_up_start_rps=20.0, ramp_up_end_rps=320.0)
    for max_concurrency, loop in ((None, "open"), (2, "open, concurrency capped")):
        options = dict(num_prompts=5, burstiness=1e6, max_concurrency=max_concurrency, **ramp)
        result, records = bench(fake_server(), **options)
        gaps = [1 / 20, 1 / 40, 1 / 80, 1 / 160, 1 / 320]
        assert [r.scheduled for r in records] == pytest.approx([sum(gaps[: i + 1]) for i in range(5)], rel=0.01)
        assert all(r.sent >= r.scheduled for r in records)
        assert (result["loop"], result["request_rate"], result["completed"]) == (loop, "inf", 5)
        assert {name: result[name] for name in ramp} == ramp
        assert "20 to 320, exponential" in table(result)


def test_all_at_once_without_a_rate(fake_server):
    result, records = bench(fake_server(lambda i, body: 0.05), num_prompts=8)
    assert (result["loop"], result["request_rate"]) == ("open", "inf")
    assert {r.scheduled for r in records} == {0.0}
    assert result["max_concurrent_requests"] == 8


def test_tokens_are_the_server_s_count_not_the_chunks(fake_server):
    result, records = bench(fake_server(), num_prompts=5, max_concurrency=2)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (20, 15)
    assert all(len(r.answer.chunk_times) == 2 and len(r.sojourn().itl) == 2 for r in records)


def test_failures_are_counted_by_reason_and_in_nothing_else(fake_server, events):
    chunk, usage, stream = events

    def plan(i, body):
        return {
            2: JSONResponse({"error": {"message": "queue full"}}, status_code=429),
            3: JSONResponse({"error": {"message": "queue full"}}, status_code=429),
            4: stream([chunk("cut")]),
            5: stream([chunk("a", "stop")]),
            6: stream([{"error": {"message": "died"}}]),
            7: stream([chunk("a", "stop"), usage(3, 1)]),
        }.get(i, 0.0)

    result, records = bench(fake_server(plan), num_prompts=9, max_concurrency=1, slos={"ttft": 60.0})
    assert (result["completed"], result["failed"]) == (4, 5)
    assert result["failures"] == {
        "HTTP 429: queue full": 2,
        "the stream ended before the answer was complete": 1,
        "the server sent no usage (stream_options.include_usage), so its tokens cannot be counted": 1,
        "the server ended the answer: died": 1,
    }
    assert result["total_output_tokens"] == 3 * 3 + 1
    assert result["num_without_tpot"] == 1
    assert result["request_goodput"] == pytest.approx(4 / result["duration"])
    each = details(records)
    assert {len(values) for values in each.values()} == {9}
    assert [e == "" for e in each["errors"]] == [True, False, False, False, False, False, True, True, True]
    assert each["output_lens"] == [3, None, None, None, None, None, 1, 3, 3]
    text = table(result)
    assert "failed: 2 × HTTP 429: queue full" in text and "1 answers of one token" in text


def test_an_answer_that_never_ends_fails_in_time(fake_server):
    result, _ = bench(fake_server(lambda i, body: 60.0 if i == 1 else 0.0), num_prompts=2, request_timeout_sec=0.5)
    assert result["failures"]["no complete answer within 0.5 s"] >= 1


def test_what_a_request_asks(fake_server):
    server = fake_server()
    bench(server, num_prompts=1, output_len=9, ignore_eos=True, api_key="secret", extra_body={"top_k": 3, "temperature": 0.5})
    prompt = server.bodies[-1].pop("prompt")
    assert len(prompt.split()) == 4
    asked = {"model": "fake", "max_tokens": 9, "temperature": 0.5, "top_k": 3, "ignore_eos": True}
    assert server.bodies[-1] == asked | {"stream": True, "stream_options": {"include_usage": True}}
    assert server.headers[-1]["authorization"] == "Bearer secret"
    bench(server, num_prompts=1, backend="openai-chat", model="other", output_len=9)
    assert [m["role"] for m in server.bodies[-1].pop("messages")] == ["user"]
    assert {k: server.bodies[-1][k] for k in ("model", "max_completion_tokens")} == {"model": "other", "max_completion_tokens": 9}


def test_warm_ups_come_first_and_change_nothing_measured(fake_server):
    prompts = []
    for num_warmups in (0, 3):
        server = fake_server()
        result, _ = bench(server, num_prompts=4, num_warmups=num_warmups, max_concurrency=1)
        assert result["completed"] == 4
        assert len(server.bodies) == 4 + max(1, num_warmups)
        prompts.append([b["prompt"] for b in server.bodies[-4:]])
    assert prompts[0] == prompts[1]
    server = fake_server()
    bench(server, num_prompts=4, ready_check_timeout_sec=0)
    assert len(server.bodies) == 4


def test_a_server_that_refuses_says_so_before_the_run(fake_server):
    server = fake_server(lambda i, body: JSONResponse({"error": {"message": "no such field"}}, status_code=400))
    with pytest.raises(BenchError, match="HTTP 400: no such field"):
        bench(server, num_prompts=50)
    assert len(server.bodies) == 1


def test_no_server():
    with pytest.raises(BenchError, match=r"no server answers at http://127\.0\.0\.1:9"):
        run(ServeOptions(base_url="http://127.0.0.1:9", ready_check_timeout_sec=0, show_progress=False))


def test_the_base_url_may_end_in_v1(fake_server):
    server = fake_server()
    server.url += "/v1/"
    assert bench(server, num_prompts=1)[0]["completed"] == 1


def test_nothing_answered_is_no_zero(fake_server):
    server = fake_server(lambda i, body: JSONResponse({"error": "full"}, status_code=503))
    result, _ = bench(server, num_prompts=2, ready_check_timeout_sec=0)
    assert result["failed"] == 2
    assert result["mean_ttft_ms"] is None and result["p99_e2el_ms"] is None and result["request_throughput"] == 0
    json.dumps(result, allow_nan=False)
    assert "–" in table(result)
    assert not math.isnan(result["duration"])
