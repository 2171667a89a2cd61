"""Checks for a stream decoder (minillm.text.stream). subject: its class, called as (tokenizer, prompt ids, skip_special)."""

from __future__ import annotations

import random

from minillm.model.checkpoints.dummy import byte_tokenizer
from minillm.text.tokenizer import Tokenizer

TEXT = "a€b 你好 👩‍👩‍👧 Hà Nội\n\n ½"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def _tokenizer() -> Tokenizer:
    """A token for each byte: every character that is not ASCII lies across tokens."""
    return Tokenizer(byte_tokenizer(300))


def _pieces(subject, tokenizer, prompt, answer, skip=True) -> list[str]:
    decoder = subject(tokenizer, prompt, skip)
    return [decoder.push(token) for token in answer] + [decoder.flush()]


def check_the_pieces_joined_are_the_text(subject):
    tokenizer = _tokenizer()
    ids = tokenizer.encode(TEXT)
    got = "".join(_pieces(subject, tokenizer, [], ids))
    assert got == TEXT, f"{TEXT!r} came out as {got!r}"


def check_half_a_character_is_never_shown(subject):
    tokenizer = _tokenizer()
    seen = b""
    decoder = subject(tokenizer, [], True)
    shown = ""
    for token in tokenizer.encode(TEXT):
        shown += decoder.push(token)
        seen += tokenizer.token_bytes(token)
        want = seen.decode(errors="ignore")  # all characters that are whole
        assert shown == want, f"after the bytes {seen!r}, {shown!r} is shown; whole are {want!r}"


def check_a_character_that_is_never_finished_is_replaced_at_the_end(subject):
    tokenizer = _tokenizer()
    pieces = _pieces(subject, tokenizer, [], tokenizer.encode("a€")[:-1])
    assert pieces == ["a", "", "", REPLACEMENT], f"the first two bytes of '€' gave {pieces}"


def check_a_bad_byte_is_replaced_at_once(subject):
    tokenizer = _tokenizer()
    pieces = _pieces(subject, tokenizer, [], [0xFF, ord("a")])
    assert pieces == [REPLACEMENT, "a", ""], f"byte FF, then 'a', gave {pieces}"


def check_a_character_may_begin_in_the_prompt(subject):
    tokenizer = _tokenizer()
    ids = tokenizer.encode("x€y")
    pieces = _pieces(subject, tokenizer, ids[:2], ids[2:])
    assert "".join(pieces) == "€y", f"the prompt ends in the first byte of '€'; the answer gave {pieces}"


def check_special_tokens_show_only_if_asked_for(subject):
    tokenizer = _tokenizer()
    special = min(tokenizer.special_ids)
    text = tokenizer.decode([special], skip_special_tokens=False)
    answer = [ord("a"), special, ord("b")]
    assert "".join(_pieces(subject, tokenizer, [], answer)) == "ab"
    assert "".join(_pieces(subject, tokenizer, [], answer, skip=False)) == f"a{text}b"


def check_any_cut_between_prompt_and_answer(subject):
    tokenizer = _tokenizer()
    ids = tokenizer.encode(TEXT)
    for cut in range(len(ids) + 1):
        before = b"".join(tokenizer.token_bytes(t) for t in ids[:cut]).decode(errors="ignore")
        got = "".join(_pieces(subject, tokenizer, ids[:cut], ids[cut:]))
        assert got == TEXT[len(before) :], f"prompt {before!r}: the answer is {TEXT[len(before) :]!r}, shown was {got!r}"


def check_random_bytes_equal_decoding_all_at_once(subject):
    tokenizer, rng = _tokenizer(), random.Random(0)
    for _ in range(200):
        ids = [rng.choice([0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0xC3, 0x61, rng.randrange(256)]) for _ in range(rng.randint(1, 12))]
        got, want = "".join(_pieces(subject, tokenizer, [], ids)), bytes(ids).decode(errors="replace")
        assert got == want, f"bytes {bytes(ids)!r}: got {got!r}, expected {want!r}"


def _kept(decoder) -> int:
    """Items in each text, bytes, list, tuple, set or dict among its attributes."""
    kinds = (str, bytes, bytearray, list, tuple, set, dict)
    return sum(len(value) for value in vars(decoder).values() if isinstance(value, kinds))


def check_only_what_is_open_is_kept(subject):
    tokenizer = _tokenizer()
    prompt, answer = list(b"a prompt " * 50), list("Hà Nội ".encode() * 100)
    given = list(prompt)
    decoder = subject(tokenizer, given, True)
    assert given == prompt, (
        f"__init__ changed the prompt's ids, from {len(prompt)} to {len(given)}: read the list, change nothing"
    )
    before = _kept(decoder)
    for token in answer:
        decoder.push(token)
    grown = _kept(decoder) - before
    assert grown <= 16, (
        f"{len(answer)} pushes, and it keeps {grown} items more than before; at most three bytes are open. Whoever keeps "
        "the answer so far decodes it again with each token: quadratic work"
    )
