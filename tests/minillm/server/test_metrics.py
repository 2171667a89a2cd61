"""What /metrics says, to the last digit, of requests whose times are given."""

from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from minillm.config import EngineConfig
from minillm.request import FinishReason, Request, RequestOutput, RequestTimes, SamplingParams
from minillm.server.metrics import Metrics, one_two_five

LABELS = {"model_name": "tiny/model", "engine": "0"}


@pytest.fixture
def metrics(engine):
    return Metrics(engine, "tiny/model")


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"minillm:{name}", LABELS | labels)


def histogram(metrics, name):
    return value(metrics, f"{name}_count"), value(metrics, f"{name}_sum")


def request(request_id="a", prompt=10, cached=0, arrival=100.0, scheduled=100.5, **params):
    params = SamplingParams(max_tokens=50, **params)
    times = RequestTimes(arrival=arrival, scheduled=scheduled)
    return Request(request_id, [0] * prompt, prompt, params, max_tokens=50, seed=0, num_cached_tokens=cached, times=times)


def tokens(request, now, count=1, finish=None):
    """What the engine does when a step gives a request tokens."""
    request.times.note_token(now)
    request.token_ids += [7] * count
    output = RequestOutput(
        request.request_id, 0, "", [7] * count, finish, None, request.num_prompt_tokens, request.num_output_tokens
    )
    return request, output


def test_the_times_of_a_request(metrics):
    one = request()
    metrics.on_admit([one])
    metrics.on_step([tokens(one, 102.0)])
    metrics.on_step([tokens(one, 102.25)])
    metrics.on_step([tokens(one, 103.0, finish=FinishReason.STOP)])
    assert histogram(metrics, "request_queue_time_seconds") == (1, 0.5)
    assert histogram(metrics, "request_prefill_time_seconds") == (1, 1.5)
    assert histogram(metrics, "time_to_first_token_seconds") == (1, 2.0)
    assert histogram(metrics, "inter_token_latency_seconds") == (2, 1.0)
    assert histogram(metrics, "request_decode_time_seconds") == (1, 1.0)
    assert histogram(metrics, "request_inference_time_seconds") == (1, 2.5)
    assert histogram(metrics, "e2e_request_latency_seconds") == (1, 3.0)
    assert histogram(metrics, "request_time_per_output_token_seconds") == (1, 0.5)
    assert value(metrics, "inter_token_latency_seconds_bucket", le="0.2") == 0
    assert value(metrics, "inter_token_latency_seconds_bucket", le="0.5") == 1


def test_end_to_end_is_first_token_and_the_rest(metrics):
    for i in range(20):
        one = request(str(i), arrival=i, scheduled=i + 0.125)
        for step in range(1, i + 2):
            metrics.on_step([tokens(one, i + 0.5 * step, finish=FinishReason.LENGTH if step == i + 1 else None)])
    (_, e2e), (_, ttft), (_, decode) = (
        histogram(metrics, name)
        for name in ("e2e_request_latency_seconds", "time_to_first_token_seconds", "request_decode_time_seconds")
    )
    assert e2e == ttft + decode
    # each of the 19 requests with two tokens and more took half a second a token
    assert histogram(metrics, "request_time_per_output_token_seconds") == (19, 19 * 0.5)


def test_tokens_are_counted(metrics):
    a, b = request("a", prompt=10, cached=8), request("b", prompt=3)
    metrics.on_admit([a])
    metrics.on_admit([b])
    metrics.on_step([tokens(a, 101)])
    metrics.on_step([])  # a chunk of a prompt gives nobody a token
    metrics.on_step([tokens(a, 102, count=3), tokens(b, 102, finish=FinishReason.LENGTH)])
    assert value(metrics, "prompt_tokens_total") == 13
    assert value(metrics, "prompt_tokens_cached_total") == 8
    assert value(metrics, "prefix_cache_queries_total") == 13
    assert value(metrics, "prefix_cache_hits_total") == 8
    assert value(metrics, "generation_tokens_total") == 5
    assert histogram(metrics, "iteration_tokens_total") == (2, (10 + 1) + (3 + 3 + 1))
    assert histogram(metrics, "request_prompt_tokens") == (1, 3)
    assert histogram(metrics, "request_generation_tokens") == (1, 1)
    assert histogram(metrics, "request_time_per_output_token_seconds") == (0, 0)  # one token has no next one
    assert value(metrics, "request_success_total", finished_reason="length") == 1
    assert value(metrics, "request_success_total", finished_reason="stop") == 0


def test_who_does_not_ask_the_prefix_cache_is_no_query(metrics, fake):
    metrics.on_step([tokens(request(prompt_logprobs=0), 101)])
    assert value(metrics, "prefix_cache_queries_total") == 0
    assert value(metrics, "prompt_tokens_total") == 10
    engine = fake()
    engine.engine.config = EngineConfig(enable_prefix_caching=False)
    without = Metrics(engine, "tiny/model")
    without.on_step([tokens(request(), 101)])
    assert value(without, "prefix_cache_queries_total") == 0


def test_what_was_asked_for(metrics):
    metrics.on_admit([request("a", n=3), request("b", n=3), request("c", n=3)])
    metrics.on_admit([request("d")])
    assert histogram(metrics, "request_params_n") == (2, 4)
    assert histogram(metrics, "request_params_max_tokens") == (4, 200)


def test_preemptions_and_aborts(metrics):
    one, other = request("a"), request("b")
    metrics.on_step([tokens(one, 101)])
    one.num_preemptions = 2
    metrics.on_step([tokens(one, 105)])
    assert value(metrics, "num_preemptions_total") == 2
    one.num_preemptions = 3
    metrics.on_abort(one)
    metrics.on_abort(other)  # before it had any token
    assert value(metrics, "num_preemptions_total") == 3
    assert value(metrics, "request_success_total", finished_reason="abort") == 2
    assert histogram(metrics, "e2e_request_latency_seconds") == (0, 0)
    assert not metrics._progress


def test_gauges_are_read_when_asked(engine, metrics):
    assert value(metrics, "num_requests_running") == 0
    engine.stats = lambda: {"running": 3, "waiting": 5, "kv_cache_usage_perc": 0.25}
    assert value(metrics, "num_requests_running") == 3
    assert value(metrics, "num_requests_waiting") == 5
    assert value(metrics, "kv_cache_usage_perc") == 0.25


def test_the_cache_is_described(metrics):
    facts = {"block_size": "16", "num_gpu_blocks": "8", "enable_prefix_caching": "True", "cache_dtype": ""}
    assert value(metrics, "cache_config_info", **facts) == 1


def test_two_servers_keep_apart(fake):
    first, second = Metrics(fake(), "tiny/model"), Metrics(fake(), "tiny/model")
    first.on_step([tokens(request(), 101)])
    assert value(first, "generation_tokens_total") == 1
    assert value(second, "generation_tokens_total") == 0


@pytest.mark.parametrize(
    "low, high, expected",
    [(1, 1, [1]), (1, 20, [1, 2, 5, 10, 20]), (1, 21, [1, 2, 5, 10, 20, 50]), (0.01, 0.1, [0.01, 0.02, 0.05, 0.1])],
)
def test_buckets(low, high, expected):
    assert one_two_five(low, high) == expected


EXPECTED = {
    "gauge": ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info"],
    "counter": [
        "prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "prompt_tokens", "prompt_tokens_cached",
        "generation_tokens", "request_success",
    ],
    "histogram": [
        "time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds",
        "request_decode_time_seconds", "request_inference_time_seconds", "request_prompt_tokens",
        "request_generation_tokens", "iteration_tokens_total", "request_params_n", "request_params_max_tokens",
    ],
}  # fmt: skip


@pytest.mark.parametrize("accept", ["*/*", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"])
def test_a_scrape_holds_them_all(client, accept):
    response = client.get("/metrics", headers={"accept": accept})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {f.name: f for f in text_string_to_metric_families(response.text) if not f.name.endswith("_created")}
    assert set(families) == {f"minillm:{name}" for names in EXPECTED.values() for name in names}
    for kind, names in EXPECTED.items():
        for name in names:
            family = families[f"minillm:{name}"]
            assert (family.type, bool(family.documentation)) == (kind, True)
            assert family.samples
            assert all(LABELS.items() <= sample.labels.items() for sample in family.samples)
    reasons = {s.labels["finished_reason"] for s in families["minillm:request_success"].samples if s.name.endswith("_total")}
    assert reasons == {reason.value for reason in FinishReason}


def test_a_scrape_of_a_named_model(client_for, fake):
    text = client_for(fake(), served_model_name='a "b"').get("/metrics").text
    labels = [s.labels["model_name"] for f in text_string_to_metric_families(text) for s in f.samples]
    assert set(labels) == {'a "b"'}


def test_a_cache_without_prefixes_says_so(fake):
    engine = fake()
    engine.engine.config = EngineConfig(kv="contiguous")
    engine.engine.scheduler.kv.layers = [SimpleNamespace(dtype="torch.bfloat16")]
    facts = {"block_size": "16", "num_gpu_blocks": "8", "enable_prefix_caching": "False", "cache_dtype": "bfloat16"}
    assert value(Metrics(engine, "tiny/model"), "cache_config_info", **facts) == 1
