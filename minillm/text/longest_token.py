"""How much text one token can stand for: what tells that a text is too long without tokenizing it."""

from __future__ import annotations

import tokenizers

from minillm.text.token_bytes import BYTE_LEVEL

# What tokenizers are known to drop or change: spaces of every kind and number, control and unprintable characters, case,
# letters that could be composed, full-width and rare ones
PROBE = " a  b   \t\t c\n\n\r\n d\u00a0\u2003\u3000e \x00\x7f\u200b\ufeff Aa É e\u0301 ﬁ Ａ 12 ,.! 漢字 🙂 \u0378\U0010fffe  "


def most_bytes_per_token(backend: tokenizers.Tokenizer) -> int | None:
    """No token stands for more bytes of UTF-8 text. None: no such number is known, because this tokenizer may drop text, so
    that many bytes may become few tokens. Byte-level tokenizers without a normaliser drop nothing."""
    added = backend.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip for token in added):  # takes all spaces beside it, however many
        return None
    ids = backend.encode(PROBE, add_special_tokens=False).ids
    if backend.decode(ids, skip_special_tokens=False) != PROBE:
        return None
    verbatim = {token.content for token in added}  # all others may be written in the byte-level alphabet, a letter a byte
    names = backend.get_vocab(with_added_tokens=True)
    return max(len(n) if n not in verbatim and BYTE_LEVEL.keys() >= set(n) else len(n.encode()) for n in names)
