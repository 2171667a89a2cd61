"""From the tokens of a step to text that is ready for the user."""

from __future__ import annotations

from dataclasses import dataclass

from minillm.request import FinishReason, Request, RequestOutput, StepOutput, TokenLogprob
from minillm.text.stop import StopChecker
from minillm.text.stream import StreamDecoder
from minillm.text.tokenizer import Tokenizer


@dataclass
class _Answer:
    decoder: StreamDecoder
    stop: StopChecker
    min_tokens: int
    num_tokens: int = 0

    def take(self, token_id: int, is_shown: bool) -> str:
        self.num_tokens += 1
        return self.check(self.decoder.push(token_id)) if is_shown else ""

    def check(self, text: str) -> str:
        """Text that is there before min_tokens tokens are passes unchecked: a stop string counts only if all of it
        lies after."""
        return self.stop.push(text) if self.num_tokens >= self.min_tokens else text

    def flush(self) -> str:
        return self.check(self.decoder.flush()) + self.stop.flush()


class OutputProcessor:
    """Decodes each request's new tokens and applies its stop strings. One a engine; not thread-safe.

    - The text of the end-of-sequence or stop token that ended an answer is left out, unless
      include_stop_str_in_output (and, for a special token, skip_special_tokens=False) asks for it, as in vLLM. Its id is
      always among token_ids.
    - A stop string ends the request here: `process` sets its finish_reason to STOP and its stop_reason to the string, and
      drops tokens of the same step that follow; the engine frees it afterwards (output.finished). It counts before
      a stop token or the length limit reached in the same step, because it comes first in the text.
    - An answer that ends otherwise releases the text held back, so the deltas joined are the whole text.
    """

    def __init__(self, tokenizer: Tokenizer, stream_decoder: type = StreamDecoder, stop_checker: type = StopChecker):
        self._tokenizer, self._stream_decoder, self._stop_checker = tokenizer, stream_decoder, stop_checker
        self._answers: dict[str, _Answer] = {}

    def add(self, request: Request) -> None:
        params = request.params
        self._answers[request.request_id] = _Answer(
            self._stream_decoder(self._tokenizer, request.token_ids, params.skip_special_tokens),
            self._stop_checker(params.stop, params.include_stop_str_in_output),
            params.min_tokens,
        )

    def process(self, step: StepOutput) -> RequestOutput:
        """The step's tokens as a delta: text that has become ready, and the ids generated."""
        request, answer = step.request, self._answers[step.request.request_id]
        ended_by_token = step.finish_reason is FinishReason.STOP and not request.params.include_stop_str_in_output
        text, taken = "", 0
        for taken, token_id in enumerate(step.new_token_ids, start=1):
            is_shown = not (ended_by_token and taken == len(step.new_token_ids))
            text += answer.take(token_id, is_shown)
            if answer.stop.matched is not None:
                break
        if step.finish_reason is not None:
            text += answer.flush()
        if answer.stop.matched is not None:
            request.finish_reason, request.stop_reason = FinishReason.STOP, answer.stop.matched
        return RequestOutput(
            request_id=request.request_id,
            index=request.index,
            text=text,
            token_ids=step.new_token_ids[:taken],
            finish_reason=request.finish_reason,
            stop_reason=request.stop_reason,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=answer.num_tokens,
            num_cached_tokens=request.num_cached_tokens,
            logprobs=_logprobs(step, taken),
            prompt_logprobs=_prompt_logprobs(request) if answer.num_tokens == taken else None,
        )

    def remove(self, request_id: str) -> None:
        """Forget a request that has finished or was aborted; unknown ids are ignored."""
        self._answers.pop(request_id, None)


def _logprobs(step: StepOutput, count: int) -> list[tuple[TokenLogprob, ...]] | None:
    return None if step.request.params.logprobs is None else [token.logprobs for token in step.tokens[:count]]


def _prompt_logprobs(request: Request) -> list[tuple[TokenLogprob, ...] | None] | None:
    """With the first delta only. Nothing precedes the first token of a prompt, so it has no probability."""
    return None if request.params.prompt_logprobs is None else [None, *request.prompt_logprobs]
