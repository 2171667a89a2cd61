"""Which bytes of the answer a token stands for."""

from __future__ import annotations

import re

import tokenizers

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level_alphabet() -> dict[str, int]:
    """The 256 printable characters that byte-level BPE writes bytes with (GPT-2, Radford et al. 2019): a byte that
    prints stands for itself, the rest are numbered from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_LEVEL = _byte_level_alphabet()


class TokenBytes:
    """token id -> bytes, such that the bytes of a sequence, joined and read as UTF-8, are its text.

    Text alone will not do: a token may hold a piece of a character, and a piece has no text. So: let the tokenizer
    decode the token; where the result is whole text, take it; where it is not, the token's *name* spells its bytes,
    either in the byte-level alphabet ("âĤ") or as a byte-fallback token ("<0xE2>").

    Holds for decoders that treat tokens one after another, as those of Llama, Mistral, SmolLM and Qwen do. The one thing
    they do to a sequence as a whole is to drop the space before its first word; hence `first`.
    """

    def __init__(self, backend: tokenizers.Tokenizer):
        self._backend = backend
        self._anchor = backend.encode("a", add_special_tokens=False).ids  # to see a token as it looks in mid-sequence
        self._anchor_text = backend.decode(self._anchor, skip_special_tokens=False)
        self._known: dict[tuple[int, bool], bytes] = {}

    def __call__(self, token_id: int, first: bool = False) -> bytes:
        """b"" for an id without a token: a model's vocabulary is often padded beyond its tokenizer's."""
        key = token_id, first
        if key not in self._known:
            self._known[key] = self._find(token_id, first)
        return self._known[key]

    def _find(self, token_id: int, first: bool) -> bytes:
        name = self._backend.id_to_token(token_id)
        if name is None:
            return b""
        text = self._decode([token_id]) if first else self._decode([*self._anchor, token_id])[len(self._anchor_text) :]
        if REPLACEMENT not in text:
            return text.encode()
        if fallback := BYTE_FALLBACK.fullmatch(name):
            return bytes.fromhex(fallback[1])
        if all(char in BYTE_LEVEL for char in name):
            return bytes(BYTE_LEVEL[char] for char in name)
        return text.encode()  # the vocabulary holds a real U+FFFD

    def _decode(self, token_ids: list[int]) -> str:
        return self._backend.decode(token_ids, skip_special_tokens=False)
