import itertools
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minillm.text.stream import StreamDecoder

BYTE_LEVEL = ["smollm2", "llama3", "qwen"]
SENTENCEPIECE = ["llama2", "metaspace"]
U = "\N{REPLACEMENT CHARACTER}"
quick = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=BYTE_LEVEL)
def byte_level(request, all_tokenizers):
    return all_tokenizers[request.param]


@pytest.fixture(params=SENTENCEPIECE)
def sentencepiece(request, all_tokenizers):
    return all_tokenizers[request.param]


@pytest.fixture(params=BYTE_LEVEL + SENTENCEPIECE)
def tokenizer(request, all_tokenizers):
    return all_tokenizers[request.param]


def pieces(tokenizer, prompt, answer, skip=True):
    decoder = StreamDecoder(tokenizer, prompt, skip)
    return [decoder.push(token) for token in answer] + [decoder.flush()]


def stream(tokenizer, prompt, answer, skip=True):
    return "".join(pieces(tokenizer, prompt, answer, skip))


def added(tokenizer, prompt, answer, skip=True):
    """What decoding all of it together adds to the prompt's text."""
    return tokenizer.decode([*prompt, *answer], skip)[len(tokenizer.decode(prompt, skip)) :]


def shown_bytes(tokenizer, ids, skip=True):
    shown = [i for i in ids if not (skip and i in tokenizer.special_ids)]
    return b"".join(tokenizer.token_bytes(token, first=i == 0) for i, token in enumerate(shown))


def test_any_cut_between_prompt_and_answer_of_known_text(tokenizer, texts):
    for text, special in itertools.product([*texts, " ".join(texts)], (True, False)):
        ids = tokenizer.encode(text, add_special_tokens=special)
        whole = tokenizer.decode(ids)
        for cut in range(min(len(ids), 60) + 1):
            before = shown_bytes(tokenizer, ids[:cut]).decode(errors="ignore")  # without a character it leaves open
            assert whole.startswith(before)
            assert stream(tokenizer, ids[:cut], ids[cut:]) == whole[len(before) :]


@quick
@given(text=st.text(max_size=40), prompt=st.text(max_size=10), skip=st.booleans())
def test_any_text_after_any_prompt(tokenizer, text, prompt, skip):
    prompt, answer = tokenizer.encode(prompt), tokenizer.encode(text, add_special_tokens=False)
    assert stream(tokenizer, prompt, answer, skip) == added(tokenizer, prompt, answer, skip)


@pytest.fixture(scope="module")
def broken_ids(all_tokenizers):
    """By tokenizer: the tokens that are no whole text."""
    return {id(tok): [i for i in range(tok.vocab_size) if U in tok.decode([i], False)] for tok in all_tokenizers.values()}


def any_ids(tokenizer, broken):
    """Pieces of characters, special tokens and ids past the vocabulary are all common."""
    rare = [*sorted(tokenizer.special_ids), tokenizer.vocab_size, tokenizer.vocab_size + 99]
    one = st.one_of(st.integers(0, tokenizer.vocab_size - 1), st.sampled_from(broken), st.sampled_from(rare))
    return st.lists(one, max_size=25)


def is_open(data: bytes) -> bool:
    """Whether `data` ends inside a character that more bytes could complete."""
    for size in (1, 2, 3):
        try:
            data[-size:].decode()
        except UnicodeDecodeError as e:
            if e.start == 0 and e.reason == "unexpected end of data":
                return True
    return False


@quick
@given(data=st.data(), skip=st.booleans())
def test_any_ids_of_a_byte_level_tokenizer(byte_level, broken_ids, data, skip):
    ids = any_ids(byte_level, broken_ids[id(byte_level)])
    prompt, answer = data.draw(ids), data.draw(ids)
    expected = added(byte_level, prompt, answer, skip)
    if is_open(shown_bytes(byte_level, prompt, skip)):
        whole = byte_level.decode([*prompt, *answer], skip)
        expected = whole[len(byte_level.decode(prompt, skip)) - 1 :]  # with the character that the prompt began
    assert stream(byte_level, prompt, answer, skip) == expected


@quick
@given(data=st.data(), skip=st.booleans())
def test_any_ids_of_a_byte_fallback_tokenizer(sentencepiece, broken_ids, data, skip):
    """As decode, except that a bad byte spoils only itself: runs of byte tokens are read as UTF-8, run by run."""
    ids = [sentencepiece.bos_token_id] * (not skip) + data.draw(any_ids(sentencepiece, broken_ids[id(sentencepiece)]))
    hidden = sentencepiece.special_ids if skip else ()
    known = [i for i in ids if i not in hidden and sentencepiece.token(i) is not None]
    expected = ""
    byte = {i: re.fullmatch(r"<0x(..)>", sentencepiece.token(i)) for i in known}
    filler = sentencepiece.encode("a", add_special_tokens=False)
    for is_byte, group in itertools.groupby(enumerate(known), key=lambda item: bool(byte[item[1]])):
        positions, run = zip(*group, strict=True)
        if is_byte:
            text = bytes.fromhex("".join(byte[i][1] for i in run)).decode("utf-8", "replace")
            if positions[0] == 0 and sentencepiece.decode([run[0]]) == "":
                text = text[1:]  # the space before the first word
            expected += text
        elif positions[0] == 0:
            expected += sentencepiece.decode(run, False)
        else:
            expected += sentencepiece.decode([*filler, *run], False)[1:]
    assert stream(sentencepiece, [], ids, skip) == expected
    if U not in expected:
        assert expected == sentencepiece.decode(ids, skip)


def test_never_half_a_character_and_no_needless_wait(tokenizer, texts):
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        decoder, shown = StreamDecoder(tokenizer, []), ""
        for i, token in enumerate(ids, start=1):
            shown += decoder.push(token)
            assert shown.count(U) <= text.count(U)
            so_far = tokenizer.decode(ids[:i])
            if U not in so_far:
                assert shown == so_far  # certain text is not held back
        assert decoder.flush() == ""


def test_emoji_comes_out_whole(all_tokenizers):
    tokenizer = all_tokenizers["llama2"]
    ids = tokenizer.encode("👍🏽", add_special_tokens=False)
    assert [p for p in pieces(tokenizer, tokenizer.encode("ok"), ids) if p] == [" ", "👍", "🏽"]


def test_space_at_the_border_is_as_in_the_whole(sentencepiece):
    hello = sentencepiece.encode("the cat", add_special_tokens=False)
    bos = [sentencepiece.bos_token_id]
    assert stream(sentencepiece, bos, hello) == "the cat"  # a hidden BOS is no text: this is the very start
    assert stream(sentencepiece, [], hello) == "the cat"
    assert stream(sentencepiece, [], [sentencepiece.vocab_size, *hello]) == "the cat"  # nor is an id without a token
    assert stream(sentencepiece, [*bos, *sentencepiece.encode("on", add_special_tokens=False)], hello) == " the cat"


def ids_of(tokenizer, data):
    """Byte tokens that spell `data`."""
    by_bytes = {tokenizer.token_bytes(i): i for i in reversed(range(tokenizer.vocab_size))}
    return [by_bytes[bytes([byte])] for byte in data]


def test_character_left_open_by_the_prompt_is_finished_by_the_answer(tokenizer):
    start = tokenizer.encode("a", add_special_tokens=False)
    emoji = ids_of(tokenizer, "👍".encode())
    assert [stream(tokenizer, [*start, *emoji[:i]], emoji[i:]) for i in range(5)] == ["👍"] * 4 + [""]
    first, second, third = ids_of(tokenizer, "€".encode())
    assert stream(tokenizer, [*start, first], [second, third]) == "€"
    assert stream(tokenizer, [*start, first, second], [third, *ids_of(tokenizer, b"z")]) == "€z"
    assert stream(tokenizer, [*start, first, second], ids_of(tokenizer, b"z")) == U + "z"
    assert stream(tokenizer, [*start, first, second, third], ids_of(tokenizer, b"z")) == "z"
    assert stream(tokenizer, [*start, *ids_of(tokenizer, b"\x80")], ids_of(tokenizer, b"z")) == "z"  # bad, not open


def test_bytes_that_never_become_a_character_do_not_wait(tokenizer):
    """A model gone astray: the text keeps coming, and what is kept does not grow."""
    start = tokenizer.encode("a", add_special_tokens=False)
    decoder = StreamDecoder(tokenizer, start)
    bad = ids_of(tokenizer, b"\x80\xe2\xf0\x9f")
    rng = random.Random(0)
    shown = 0
    for count in range(1, 2001):
        shown += len(decoder.push(rng.choice(bad)))
        assert len(decoder._utf8.getstate()[0]) <= 3
        assert shown >= (count - 3) / 2  # one U+FFFD for F0 9F, the only pair here that goes together


def test_unfinished_character_at_the_end(tokenizer):
    start = tokenizer.encode("a", add_special_tokens=False)
    euro = ids_of(tokenizer, "€".encode())
    assert pieces(tokenizer, start, euro[:2]) == ["", "", U]
    assert pieces(tokenizer, start, euro) == ["", "", "€", ""]


def test_special_tokens_are_hidden_unless_asked_for(tokenizer):
    start = tokenizer.encode("a", add_special_tokens=False)
    eos = tokenizer.eos_token_id
    assert stream(tokenizer, start, [eos, *start, eos], skip=True) == added(tokenizer, start, [eos, *start, eos], skip=True)
    assert stream(tokenizer, start, [eos], skip=False) == tokenizer.token(eos)


def test_each_token_is_decoded_once(tokenizer, monkeypatch):
    """Constant work a token: nothing is decoded again as the answer grows, nor for the prompt's whole length."""
    prompt = tokenizer.encode("the cat sat on the mat " * 200)
    seen = []
    token_bytes = tokenizer._token_bytes
    monkeypatch.setattr(tokenizer, "_token_bytes", lambda token, first: seen.append(token) or token_bytes(token, first))
    decoder = StreamDecoder(tokenizer, prompt)
    assert len(seen) <= 3
    seen.clear()
    for token in prompt:
        decoder.push(token)
    assert len(seen) <= len(prompt)
