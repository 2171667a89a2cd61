"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from minillm.admission import Admission
from minillm.config import EngineConfig, ModelConfig
from minillm.errors import BadLogitsError, RequestError
from minillm.events import EventRecorder
from minillm.request import FinishReason, Request, RequestOutput, SamplingParams, StepOutput
from minillm.runner import Runner
from minillm.sampling.bad_logits import fail, scrub, set_aside
from minillm.sampling.pipeline import Sampler
from minillm.sampling.rng import derive_seed
from minillm.scheduler import SchedulePlan, Scheduler
from minillm.text.output import OutputProcessor
from minillm.text.tokenizer import Tokenizer

log = logging.getLogger("minillm")


class Engine:
    """Everything one model needs to serve. Not thread-safe: one thread adds, steps and aborts."""

    def __init__(
        self,
        config: EngineConfig,
        model_config: ModelConfig,
        tokenizer: Tokenizer,
        scheduler: Scheduler,
        runner: Runner,
        sampler: Sampler,
        output: OutputProcessor,
        model_name: str,
        max_model_len: int,
    ):
        self.config, self.model_config, self.model_name, self.max_model_len = config, model_config, model_name, max_model_len
        self.tokenizer, self.scheduler, self.runner, self.sampler = tokenizer, scheduler, runner, sampler
        self.output = output
        self.events = EventRecorder(self)
        self.admission = Admission(model_config.vocab_size, max_model_len, scheduler.kv)
        self._requests: dict[str, Request] = {}
        self._serial = itertools.count()

    @classmethod
    def from_config(cls, config: EngineConfig, mine: Mapping[str, Any] | None = None) -> Engine:
        """Open the checkpoint, load the model, size the cache. Raises MinillmError for what the user can mend.

        mine: {part name: object} to use in place of the reference parts, see minillm.parts."""
        from minillm.loading import build_engine

        return build_engine(config, mine)

    def step(self) -> list[StepOutput]:
        """One forward pass for every request that is due: at most one new token each."""
        started, plan = time.monotonic(), SchedulePlan()
        try:
            plan = self.scheduler.schedule()
            if not plan:
                return []
            batch = self.runner.prepare(plan)
            logits = self.runner.forward(batch)
            bad = set_aside(logits, batch.requests) + batch.broken
            scrub(self.scheduler.kv.layers, bad)  # while they have their blocks
            tokens = self.sampler(logits, batch.requests)
        except BaseException:  # Ctrl-C in a notebook too
            self.scheduler.kv.forget()
            scrub(self.scheduler.kv.layers, plan.requests)  # nobody has looked at what they wrote
            raise
        outputs = self.scheduler.update(plan, tokens)
        if bad:
            self._fail(bad, outputs)
        if self.events.is_on:
            self.events.after_step(plan, outputs, time.monotonic() - started)
        return outputs

    def _fail(self, bad: list[Request], outputs: list[StepOutput]) -> None:
        """End requests whose numbers are none, and say so in `outputs`: in their own or, of chunks of prompts, in new ones.
        What they computed must not be found by others, so nothing is any more."""
        answered = [output.request for output in outputs]
        outputs += [StepOutput(request, []) for request in bad if request not in answered]
        for output in outputs:
            if output.request in bad:
                fail(output)
                self.scheduler.finish(output.request, FinishReason.ERROR)
                log.warning("%s: %s", output.request.request_id, BadLogitsError())
        self.scheduler.kv.forget()

    def step_text(self) -> list[RequestOutput]:
        """A step, and its tokens as text that is ready to show. Ends requests whose stop string appeared."""
        steps, now = self.step(), time.monotonic()
        for step in steps:
            if step.tokens:
                step.request.times.note_token(now)
        outputs = [self.output.process(step) for step in steps]
        for output in outputs:
            if output.finished:
                self._forget(output.request_id)
        return outputs

    def make_requests(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> list[Request]:
        """Check a prompt and build its params.n requests. Raises RequestError for what could never be served."""
        max_tokens = self.admission.check(prompt_token_ids, params)
        serial = next(self._serial)
        request_id = request_id or f"request-{serial}"
        seed = params.seed if params.seed is not None else derive_seed(self.config.seed, serial)
        return [
            Request(
                request_id=request_id if params.n == 1 else f"{request_id}/{index}",
                token_ids=list(prompt_token_ids),
                num_prompt_tokens=len(prompt_token_ids),
                params=params,
                max_tokens=max_tokens,
                seed=seed,
                eos_token_ids=frozenset(self.model_config.eos_token_ids),
                index=index,
                serial=serial,
                priority=priority,
                cache_salt=cache_salt,
            )
            for index in range(params.n)
        ]

    def add(self, request: Request) -> None:
        if request.request_id in self._requests:
            raise RequestError(f"request id {request.request_id!r} is already being served; choose another", param="request_id")
        self._requests[request.request_id] = request
        self.output.add(request)
        self.scheduler.add(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Drop requests, waiting or running; ids that are unknown (already finished) are ignored."""
        for request_id in request_ids:
            if request_id in self._requests:
                self._forget(request_id)

    @property
    def has_unfinished(self) -> bool:
        return bool(self._requests)

    def _forget(self, request_id: str) -> None:
        request = self._requests.pop(request_id)
        self.scheduler.finish(request, FinishReason.ABORT)  # if it had not ended by itself
        request.times.finished = time.monotonic()
        self.output.remove(request_id)
        if self.events.is_on:
            self.events.after_end(request)
