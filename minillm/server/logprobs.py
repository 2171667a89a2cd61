"""Log-probabilities in the shapes that clients know: OpenAI's for chat, OpenAI's older one for completions, vLLM's for prompts.

An answer has an entry for every token that was sampled, the end-of-sequence token included, though that one has no text.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable

from minillm.request import TokenLogprob
from minillm.text.tokenizer import Tokenizer

Entry = tuple[TokenLogprob, ...]  # the token's own, then the likeliest ones in order
LOWEST = -9999.0  # JSON has no -Infinity; vLLM's stand-in for it


def chat_logprobs(tokenizer: Tokenizer, entries: list[Entry] | None, count: int) -> dict | None:
    """`logprobs` of a chat choice; None where the request did not ask. count: top_logprobs a token."""
    if entries is None:
        return None
    content = [
        _chat_token(tokenizer, entry[0]) | {"top_logprobs": [_chat_token(tokenizer, top) for top in entry[1 : 1 + count]]}
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def prompt_logprobs(tokenizer: Tokenizer, entries: Iterable[Entry | None], count: int) -> list[dict | None]:
    """vLLM's `prompt_logprobs`: for each prompt token {token id: {logprob, rank, decoded_token}}, null for the first."""
    return [
        None
        if entry is None
        else {
            str(t.token_id): {"logprob": _finite(t.logprob), "rank": t.rank, "decoded_token": _text(tokenizer, t.token_id)}
            for t in entry[: 1 + count]
        }
        for entry in entries
    ]


class CompletionLogprobs:
    """`logprobs` of one completion choice, whole or delta by delta: it remembers where in the text the next token begins."""

    def __init__(self, tokenizer: Tokenizer, count: int, skip_special_tokens: bool):
        self._tokenizer, self._count, self._skips_special = tokenizer, count, skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a token may end inside a character
        self._offset = 0  # characters

    def prompt(self, token_ids: list[int], entries: list[Entry | None], text: str) -> dict:
        """Of an echoed prompt. text: as it is echoed; it may lack special tokens, such as a BOS put in front."""
        special = self._tokenizer.special_ids

        def is_shown(token_id: int) -> bool:
            return token_id not in special or text.startswith(_text(self._tokenizer, token_id), self._offset)

        return self._shape(token_ids, entries, is_shown, opens_text=True)

    def answer(self, token_ids: list[int], entries: list[Entry]) -> dict:
        """Of newly generated tokens."""
        special = self._tokenizer.special_ids if self._skips_special else ()
        return self._shape(token_ids, entries, lambda token_id: token_id not in special)

    def _shape(
        self, token_ids: list[int], entries: list[Entry | None], is_shown: Callable[[int], bool], opens_text: bool = False
    ) -> dict:
        offsets = []
        for token_id, _ in zip(token_ids, entries, strict=True):
            offsets.append(self._offset)
            if is_shown(token_id):
                spelled = self._tokenizer.token_bytes(token_id, first=opens_text and self._offset == 0)
                self._offset += len(self._decoder.decode(spelled))
        return {
            "tokens": [_text(self._tokenizer, token_id) for token_id in token_ids],
            "token_logprobs": [None if entry is None else _finite(entry[0].logprob) for entry in entries],
            "top_logprobs": [None if entry is None else self._top(entry) for entry in entries],
            "text_offset": offsets,
        }

    def _top(self, entry: Entry) -> dict[str, float]:
        """The token's own and the likeliest; of two that are spelled alike (pieces of characters) the likelier one."""
        top: dict[str, float] = {}
        for token in entry[: 1 + self._count]:
            text = _text(self._tokenizer, token.token_id)
            top[text] = max(top.get(text, LOWEST), _finite(token.logprob))
        return top


def joined(parts: list[dict]) -> dict:
    """Deltas of CompletionLogprobs as one."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def _chat_token(tokenizer: Tokenizer, token: TokenLogprob) -> dict:
    spelled = tokenizer.token_bytes(token.token_id)
    return {"token": spelled.decode("utf-8", "replace"), "logprob": _finite(token.logprob), "bytes": list(spelled)}


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
