"""Incremental detokenization: text as soon as it is certain, and never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from minillm.text.tokenizer import Tokenizer

LONGEST_OPEN = 3  # bytes: a UTF-8 character has at most four, so an unfinished one at most three


class StreamDecoder:
    """Turns the tokens of an answer into text, one at a time, in constant time a token.

    A token is bytes, not characters: "€" (E2 82 AC) may come as three tokens, and "你" may end in the token that begins
    "好". Decoding each token alone gives U+FFFD for every piece; decoding the whole answer anew at each token gives the
    right text in quadratic time. What has to be kept between two tokens is only the character that is still open, and
    an incremental UTF-8 decoder keeps exactly that: at most three bytes.

    All pushes and the flush, joined, are what decoding prompt and answer together adds to the prompt's text:
    - A space that opens the answer is kept or dropped as it is there (SentencePiece drops it only at the very start).
    - Bytes that can no longer become a character give U+FFFD at once, with the same count as there; bytes that still
      may are held back, and give U+FFFD only at the flush.
    - A character that the prompt's last token left open is the answer's to finish, and appears in it.

    One difference is on purpose. A byte-fallback tokenizer, decoding a run of byte tokens of which one is bad, replaces
    *every* byte of the run, characters already shown included. A stream cannot take characters back, so here only the
    bad bytes are replaced; the two agree wherever runs are valid UTF-8, as those of encoded text always are.

    (Others keep a window of tokens, decode it with and without the newest, and emit the difference unless that ends in
    U+FFFD: text-generation-inference's prefix_offset and read_offset, tokenizers' DecodeStream. That needs to know
    nothing about bytes, but a run of bad bytes holds the text back and makes the window, so the cost a token, grow.)
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], skip_special_tokens: bool = True):
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        tail = self._last_bytes(prompt_token_ids)
        self._utf8.decode(tail)  # leaves the decoder inside the character that the prompt left open, if it did
        self._is_first = not tail

    def push(self, token_id: int) -> str:
        """The text that has become certain with this token; often "" for part of a character or a special token."""
        if token_id in self._hidden or self._tokenizer.token(token_id) is None:
            return ""
        data = self._tokenizer.token_bytes(token_id, first=self._is_first)
        self._is_first = False
        return self._utf8.decode(data)

    def flush(self) -> str:
        """What remains at the end: U+FFFD for a character that was never finished, else ""."""
        return self._utf8.decode(b"", final=True)

    def _last_bytes(self, token_ids: Sequence[int]) -> bytes:
        """At least the last LONGEST_OPEN bytes, if there are so many, of the text of `token_ids`."""
        tail = b""
        for token_id in reversed(token_ids):
            if len(tail) >= LONGEST_OPEN:
                break
            if token_id not in self._hidden:
                tail = self._tokenizer.token_bytes(token_id) + tail
        return tail
