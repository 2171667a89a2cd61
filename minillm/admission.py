"""What can never be served is refused before it queues, with the way out in the message."""

from __future__ import annotations

from minillm.errors import ContextLengthError, RequestError
from minillm.kv.base import KVCache
from minillm.request import SamplingParams


class Admission:
    def __init__(self, vocab_size: int, max_model_len: int, kv: KVCache):
        self.vocab_size, self.max_model_len, self.kv = vocab_size, max_model_len, kv

    def check(self, prompt: list[int], params: SamplingParams) -> int:
        """The number of tokens the answer may have. Raises RequestError naming the field that asks for the impossible."""
        room = self._room(prompt)  # first: a prompt of millions of ids is not worth looking at one by one
        self._check_ids("prompt", prompt)
        self._check_ids("stop_token_ids", params.stop_token_ids)
        self._check_ids("logit_bias", [token for token, _ in params.logit_bias])
        if params.max_tokens is not None and params.max_tokens > room:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens and max_tokens asks for {params.max_tokens} more; "
                f"this model's context holds {self.max_model_len}. Ask for at most {room}, or leave max_tokens out",
                param="max_tokens",
            )
        if params.min_tokens > room:
            raise RequestError(f"min_tokens asks for {params.min_tokens} tokens and there is room for {room}", param="min_tokens")
        max_tokens = room if params.max_tokens is None else params.max_tokens
        if not self.kv.fits_alone(len(prompt) + max_tokens):
            raise RequestError("this request could outgrow the whole cache; ask for fewer tokens", param="max_tokens")
        return max_tokens

    def _room(self, prompt: list[int]) -> int:
        if not prompt:
            raise RequestError("the prompt is empty: give at least one token", param="prompt")
        room = self.max_model_len - len(prompt)
        if room < 1:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens; this model's context holds {self.max_model_len}, "
                "one of them for the answer. Shorten the prompt or raise --max-model-len",
                param="prompt",
            )
        return room

    def _check_ids(self, name: str, ids: list[int] | tuple[int, ...]) -> None:
        if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            raise RequestError(f"{name} holds token ids outside the vocabulary (0 to {self.vocab_size - 1})", param=name)
