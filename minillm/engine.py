"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from minillm.config import EngineConfig, ModelConfig
from minillm.errors import RequestError
from minillm.request import FinishReason, Request, RequestOutput, SamplingParams, StepOutput
from minillm.runner import Runner
from minillm.sampling.pipeline import Sampler
from minillm.sampling.rng import derive_seed
from minillm.scheduler import Scheduler
from minillm.text.output import OutputProcessor
from minillm.text.tokenizer import Tokenizer


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
        model_name: str,
        max_model_len: int,
    ):
        self.config, self.model_config, self.model_name, self.max_model_len = config, model_config, model_name, max_model_len
        self.tokenizer, self.scheduler, self.runner, self.sampler = tokenizer, scheduler, runner, sampler
        self.output = OutputProcessor(tokenizer)
        self._requests: dict[str, Request] = {}
        self._serial = itertools.count()

    @classmethod
    def from_config(cls, config: EngineConfig) -> Engine:
        """Open the checkpoint, load the model, size the cache. Raises MinillmError for what the user can mend."""
        from minillm.loading import build_engine

        return build_engine(config)

    def step(self) -> list[StepOutput]:
        """One forward pass for every request that is due: at most one new token each."""
        plan = self.scheduler.schedule()
        if not plan:
            return []
        batch = self.runner.prepare(plan)
        logits = self.runner.forward(batch)
        tokens = self.sampler(logits, batch.requests)
        return self.scheduler.update(plan, tokens)

    def step_text(self) -> list[RequestOutput]:
        """A step, and its tokens as text that is ready to show. Ends requests whose stop string appeared."""
        outputs = [self.output.process(step) for step in self.step()]
        for output in outputs:
            if output.finished:
                self._forget(output.request_id)
        return outputs

    def make_requests(self, prompt_token_ids: list[int], params: SamplingParams, request_id: str | None = None) -> list[Request]:
        """Check a prompt and build its params.n requests. Raises RequestError for what could never be served."""
        max_tokens = self._check(prompt_token_ids, params)
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
        self.scheduler.finish(self._requests.pop(request_id), FinishReason.ABORT)
        self.output.remove(request_id)

    def _check(self, prompt: list[int], params: SamplingParams) -> int:
        if not prompt:
            raise RequestError("the prompt is empty: give at least one token", param="prompt")
        if not all(0 <= token < self.model_config.vocab_size for token in prompt):
            raise RequestError(
                f"the prompt holds token ids outside the vocabulary (0 to {self.model_config.vocab_size - 1})", param="prompt"
            )
        room = self.max_model_len - len(prompt)
        if room < 1:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens; this model's context holds {self.max_model_len}, "
                "one of them for the answer. Shorten the prompt or raise --max-model-len",
                param="prompt",
            )
        if params.max_tokens is not None and params.max_tokens > room:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens and max_tokens asks for {params.max_tokens} more; "
                f"this model's context holds {self.max_model_len}. Ask for at most {room}, or leave max_tokens out",
                param="max_tokens",
            )
        return params.max_tokens if params.max_tokens is not None else room
