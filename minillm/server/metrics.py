"""What /metrics tells Prometheus, under vLLM's names with the prefix `minillm:`, and GET /metrics itself.

A request is here what the engine runs: one sample of one prompt, so that n=3 makes three. The times of a request are

    arrival ──── scheduled ──────── first token ─── … ─── last token
       └── queue ──┘└───── prefill ─────┘└──── decode ─────┘
       └───── time to first token ──────┘
                    └────────────── inference ─────────────┘
       └──────────────── end-to-end latency ───────────────┘

arrival: the server has read the prompt and puts it into the queue. scheduled: it first leaves the queue; a preemption later does
not set it back, so recomputation counts as prefill or decode, wherever it fell. Tokens are timed at the end of the
step that computed them, so writing to the network is not included. Hence, exactly,

    time to first token = queue + prefill
    time per output token (TPOT) = decode / (output tokens - 1), for requests of two tokens and more
    end-to-end latency = time to first token + TPOT * (output tokens - 1)

Inter-token latency has one observation for each step after the first that gave a request tokens. Requests whose client went
away count in request_success{finished_reason="abort"} and in no histogram of whole requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from minillm import request as engine_request
from minillm.async_engine import AsyncEngine
from minillm.request import FinishReason, RequestOutput

router = APIRouter()

PREFIX = "minillm:"
ENGINE = "0"  # vLLM numbers its data-parallel engines; here is one


def one_two_five(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20 … times a power of ten, from the first that is not below low to the first that is not below high."""
    steps = [float(f"{digit}e{exponent}") for exponent in range(-6, 12) for digit in (1, 2, 5)]
    return [b for b in steps if low <= b < high] + [next(b for b in steps if b >= high)]


SECONDS = one_two_five(0.001, 1000)

GAUGES = {
    "num_requests_running": "Requests that hold cache and are computed.",
    "num_requests_waiting": "Requests accepted that hold no cache: new ones and preempted ones.",
    "kv_cache_usage_perc": "Share of the KV cache held by requests, 0 to 1.",
}
COUNTERS = {
    "prefix_cache_queries": "Prompt tokens looked up in the prefix cache.",
    "prefix_cache_hits": "Prompt tokens found in the prefix cache.",
    "num_preemptions": "Times a request lost its cache to another; booked when it next gets a token, or ends.",
    "prompt_tokens": "Prompt tokens of requests whose prefill has ended, cached ones included.",
    "prompt_tokens_cached": "Those of them that came from the prefix cache.",
    "generation_tokens": "Tokens generated.",
}
SECONDS_HISTOGRAMS = {
    "time_to_first_token_seconds": "From arrival to the first token, the queue included.",
    "inter_token_latency_seconds": "Between two steps that gave one request tokens.",
    "request_time_per_output_token_seconds": "(last - first token) / (tokens - 1), of requests with at least two.",
    "e2e_request_latency_seconds": "From arrival to the last token.",
    "request_queue_time_seconds": "From arrival until first scheduled.",
    "request_prefill_time_seconds": "From scheduled to the first token.",
    "request_decode_time_seconds": "From the first token to the last.",
    "request_inference_time_seconds": "From scheduled to the last token.",
}
TOKENS_HISTOGRAMS = {
    "request_prompt_tokens": "Prompt tokens of finished requests.",
    "request_generation_tokens": "Generated tokens of finished requests.",
    "request_params_max_tokens": "Most tokens a request may generate, as resolved on arrival.",
}


@dataclass
class _Progress:
    """What has been booked of a request so far."""

    last_token: float  # time.monotonic(), seconds
    num_preemptions: int = 0


class Metrics:
    """An AsyncEngine's observer with a registry of its own, so that two servers in one process keep apart."""

    def __init__(self, engine: AsyncEngine, model_name: str):
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": ENGINE}
        self._progress: dict[str, _Progress] = {}
        config, kv = engine.engine.config, engine.engine.scheduler.kv
        self._caches_prefixes = config.kv != "contiguous" and config.enable_prefix_caching
        for name, text in GAUGES.items():
            key = name.removeprefix("num_requests_")
            self._make(Gauge, name, text).set_function(lambda key=key: engine.stats()[key])
        self._counters = {name: self._make(Counter, name, text) for name, text in COUNTERS.items()}
        tokens = one_two_five(1, engine.engine.max_model_len)
        self._histograms = {n: self._make(Histogram, n, t, buckets=SECONDS) for n, t in SECONDS_HISTOGRAMS.items()}
        self._histograms |= {n: self._make(Histogram, n, t, buckets=tokens) for n, t in TOKENS_HISTOGRAMS.items()}
        self._histograms["request_params_n"] = self._make(
            Histogram, "request_params_n", "Samples asked for of a prompt; once a prompt.", buckets=one_two_five(1, 100)
        )
        self._histograms["iteration_tokens_total"] = self._make(
            Histogram,
            "iteration_tokens_total",
            "Tokens of a step: generated ones, and the prompts whose prefill ended in it.",
            buckets=one_two_five(1, max(config.max_num_batched_tokens, engine.engine.max_model_len)),
        )
        success = Counter(
            PREFIX + "request_success", "Requests ended, by reason.", [*self._labels, "finished_reason"], registry=self.registry
        )
        self._ended = {reason: success.labels(**self._labels, finished_reason=reason.value) for reason in FinishReason}
        facts = {
            "block_size": kv.block_size,
            "num_gpu_blocks": kv.num_blocks,  # vLLM's name, whatever they lie on
            "enable_prefix_caching": self._caches_prefixes,
            "cache_dtype": str(kv.layers[0].dtype).removeprefix("torch.") if kv.layers else "",
        }
        info = Gauge(
            PREFIX + "cache_config_info", "The KV cache, in the labels.", [*self._labels, *facts], registry=self.registry
        )
        info.labels(**self._labels, **{name: str(value) for name, value in facts.items()}).set(1)

    def _make(self, kind: type, name: str, text: str, **options):
        return kind(PREFIX + name, text, list(self._labels), registry=self.registry, **options).labels(**self._labels)

    def on_admit(self, requests: list[engine_request.Request]) -> None:
        self._histograms["request_params_n"].observe(len(requests))
        for request in requests:
            self._histograms["request_params_max_tokens"].observe(request.max_tokens)

    def on_step(self, outputs: list[tuple[engine_request.Request, RequestOutput]]) -> None:
        step_tokens = 0
        for request, output in outputs:
            if output.finish_reason is FinishReason.ERROR:  # got no token in this step
                self._end_early(request, FinishReason.ERROR)
                continue
            step_tokens += len(output.token_ids)
            progress = self._progress.get(request.request_id)
            if progress is None:
                step_tokens += request.num_prompt_tokens
                progress = self._progress[request.request_id] = self._begin(request)
            else:
                self._observe("inter_token_latency_seconds", request.times.last_token - progress.last_token)
                progress.last_token = request.times.last_token
            self._book_preemptions(request, progress)
            if output.finished:
                self._finish(request, output)
        if outputs:
            self._counters["generation_tokens"].inc(sum(len(output.token_ids) for _, output in outputs))
            self._observe("iteration_tokens_total", step_tokens)

    def on_abort(self, request: engine_request.Request) -> None:
        self._end_early(request, FinishReason.ABORT)

    def _end_early(self, request: engine_request.Request, reason: FinishReason) -> None:
        self._book_preemptions(request, self._progress.pop(request.request_id, _Progress(0.0)))
        self._ended[reason].inc()

    def _begin(self, request: engine_request.Request) -> _Progress:
        """Its first token is there."""
        times = request.times
        self._observe("time_to_first_token_seconds", times.first_token - times.arrival)
        self._counters["prompt_tokens"].inc(request.num_prompt_tokens)
        self._counters["prompt_tokens_cached"].inc(request.num_cached_tokens)
        if self._caches_prefixes and not request.skip_prefix_cache:
            self._counters["prefix_cache_queries"].inc(request.num_prompt_tokens)
            self._counters["prefix_cache_hits"].inc(request.num_cached_tokens)
        return _Progress(times.last_token)

    def _finish(self, request: engine_request.Request, output: RequestOutput) -> None:
        del self._progress[request.request_id]
        self._ended[output.finish_reason].inc()
        times, decode = request.times, request.times.last_token - request.times.first_token
        self._observe("request_queue_time_seconds", times.scheduled - times.arrival)
        self._observe("request_prefill_time_seconds", times.first_token - times.scheduled)
        self._observe("request_decode_time_seconds", decode)
        self._observe("request_inference_time_seconds", times.last_token - times.scheduled)
        self._observe("e2e_request_latency_seconds", times.last_token - times.arrival)
        self._observe("request_prompt_tokens", request.num_prompt_tokens)
        self._observe("request_generation_tokens", output.num_output_tokens)
        if output.num_output_tokens > 1:
            self._observe("request_time_per_output_token_seconds", decode / (output.num_output_tokens - 1))

    def _book_preemptions(self, request: engine_request.Request, progress: _Progress) -> None:
        self._counters["num_preemptions"].inc(request.num_preemptions - progress.num_preemptions)
        progress.num_preemptions = request.num_preemptions

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Prometheus' text format, which every scraper reads: in OpenMetrics the client library writes the colon as "_"."""
    return Response(generate_latest(request.app.state.metrics.registry), headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})
