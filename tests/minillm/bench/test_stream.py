"""Bytes off the wire to an answer, however the network cuts them."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minillm.bench.stream import BadAnswer, error_message, parse_answer


def sse(*events) -> bytes:
    return b"".join(b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in events)


def text(t, finish=None):
    return {"choices": [{"index": 0, "text": t, "finish_reason": finish}], "usage": None}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
WHOLE = sse(text("Grüße"), text(" an"), text(" alle", "length"), USAGE, b"[DONE]")


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20).map(sorted))
def test_reads_may_cut_anywhere(cuts):
    edges = [0, *cuts, len(WHOLE)]
    answer = parse_answer([(float(i), WHOLE[a:b]) for i, (a, b) in enumerate(pairwise(edges))])
    assert (answer.text, answer.prompt_tokens, answer.output_tokens, answer.finish_reason) == ("Grüße an alle", 7, 3, "length")
    assert answer.chunk_times == sorted(answer.chunk_times) and len(answer.chunk_times) == 3


def test_an_event_is_timed_by_the_read_that_completed_it():
    data = sse(text("a"))
    reads = [(1.0, data[:10]), (2.0, data[10:]), (3.0, sse(text("b"), text("c", "stop"), USAGE))]
    assert parse_answer(reads).chunk_times == [2.0, 3.0, 3.0]


def test_a_chat_s_opening_role_is_no_token():
    def delta(d, finish=None):
        return {"choices": [{"index": 0, "delta": d, "finish_reason": finish}]}

    opening, thought, said = {"role": "assistant", "content": ""}, {"reasoning_content": "hm "}, {"content": "yes"}
    reads = [(float(i), sse(e)) for i, e in enumerate([delta(opening), delta(thought), delta(said), delta({}, "stop"), USAGE])]
    answer = parse_answer(reads)
    assert answer.text == "hm yes"
    assert answer.chunk_times == [1.0, 2.0, 3.0]  # the third token is the end of sequence, without text


def test_the_event_that_ends_an_answer_is_no_token_if_all_are_there():
    reads = [(float(i), sse(e)) for i, e in enumerate([text("a"), text("b"), text("c"), text("", "stop"), USAGE])]
    assert parse_answer(reads).chunk_times == [0.0, 1.0, 2.0]


def test_an_answer_without_text_has_its_end_as_first_token():
    usage = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    assert parse_answer([(4.0, sse(text("", "stop"), usage))]).chunk_times == [4.0]


@pytest.mark.parametrize(
    "data, reason",
    [
        (sse(text("a"), text("b")), "ended before the answer was complete"),
        (b"", "ended before the answer was complete"),
        (sse(text("a", "stop"), b"[DONE]"), "no usage"),
        (sse(text("", "stop"), {"choices": [], "usage": {"completion_tokens": 0}}), "no tokens"),
        (sse(text("a"), {"error": {"message": "engine\n died", "code": 500}}), "engine died"),
        (sse(b"<html>"), "no JSON object"),
        (sse(b"[1]"), "no JSON object"),
    ],
)
def test_what_is_no_answer_says_why(data, reason):
    with pytest.raises(BadAnswer, match=reason):
        parse_answer([(0.0, data)])


def test_error_messages_come_in_several_shapes():
    assert error_message({"error": {"message": "a  b"}}) == "a b"
    assert error_message({"error": "flat"}) == error_message({"message": "flat"}) == error_message("flat") == "flat"
