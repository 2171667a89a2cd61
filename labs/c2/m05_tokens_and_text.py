"""2.5 Tokens and text: what stands between a model's tokens and a reader's screen.

Write the three classes below, then run `labs check 2.5` (or `pytest labs/c2/test_m05_tokens_and_text.py`). Stuck?
`labs hint 2.5`. They do not need one another. When the first two pass, the engine can run them:
`minillm generate --mine=text.stream,text.stop --prompt "Xin chào"`, or `minillm serve --mine`.

Of a tokenizer (minillm.text.tokenizer.Tokenizer) you need

    tokenizer.special_ids                  frozenset of the ids of special tokens: "<|im_end|>" and its like
    tokenizer.token(id)                    the token's name, or None: a model's vocabulary may be padded with ids without a token
    tokenizer.token_bytes(id)              the bytes of UTF-8 text that the token adds to a text; b"" for an id without a token
    tokenizer.token_bytes(id, first=True)  the same where no shown token stands before it: some tokenizers drop the space in
                                           front of a text's first word

A token is bytes, not characters: "€" is E2 82 AC, and these may come in one token, in two or in three. Nor do tokens end where
characters do: one token may finish a character and begin the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from labs.kit import exercise
from minillm.text.sections import ANSWER, MARKERS, Marker, Piece
from minillm.text.tokenizer import Tokenizer


@exercise(reference="minillm.text.stream:StreamDecoder", part="text.stream")
class StreamDecoder:
    """Turns the tokens of one answer into text, one at a time: never half a character, and nothing later than need be.

    The answer's bytes are those of its shown tokens, one after another. Read them as UTF-8, as `bytes.decode("utf-8",
    errors="replace")` would read all of them at once, but hand out each character with the token that completes it:

    - Bytes that may still become a character (at most three) wait for the next token.
    - Bytes that no further byte can make a character give U+FFFD with the token that shows it, as many as decode gives.
    - If the prompt's last bytes leave a character open, the answer's first bytes may finish it. That character then belongs to
      the answer; so does the U+FFFD if they do not, or if there are none. Of what the prompt says otherwise, nothing appears.

    All pushes and the flush, joined, are the text of the answer. A push takes the same time, and nothing more is kept, however
    long the answer is.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], skip_special_tokens: bool = True):
        """prompt_token_ids: ids of the prompt, perhaps none; only its last few matter, and it may be long.
        skip_special_tokens: special tokens are not shown, neither the prompt's nor the answer's: they add no bytes, and a token
        after nothing but special ones is the first of its text. False: they are shown as any other token."""
        raise NotImplementedError

    def push(self, token_id: int) -> str:
        """The text that is certain with this token and was not before; "" if there is none.

        An id without a token adds nothing, and does not count as the first of a text."""
        raise NotImplementedError

    def flush(self) -> str:
        """The end of the answer: U+FFFD if a character is still open, which now nothing will finish, else ""."""
        raise NotImplementedError


@exercise(reference="minillm.text.stop:StopChecker", part="text.stop")
class StopChecker:
    """Ends an answer where a stop string appears in its text, and never shows a part of one.

    The text comes in pieces, and where they are cut means nothing: a stop string may lie in one, across several, or begin in the
    middle of one. The answer ends at the first character that completes any stop string. If several are complete there ("ab"
    and "b"), the longest counts.

    What is held back is exactly the longest end of the text so far that is a beginning of a stop string, and no more: the stop
    string "</a>" keeps "<" waiting, and lets "<b" go at once.
    """

    def __init__(self, stop: Sequence[str] = (), include_stop_str_in_output: bool = False):
        """stop: strings, none of them empty; perhaps none at all. include_stop_str_in_output: whether the text that is shown ends
        with the stop string or before it; nothing behind it is shown either way.

        Sets self.matched = None. It becomes the stop string that ended the answer, and the engine reads it after each push.
        """
        raise NotImplementedError

    def push(self, text: str) -> str:
        """Take the next piece of text, perhaps "", and return what may be shown now. Once something has matched: ""."""
        raise NotImplementedError

    def flush(self) -> str:
        """The answer ended otherwise (an end-of-sequence token, a length limit): the text held back, which is shown now.

        "" once something has matched."""
        raise NotImplementedError


@exercise(reference="minillm.text.sections:SectionSplitter")
class SectionSplitter:
    """Splits an answer, while it streams, into sections: reasoning, tool calls, and the answer proper.

        Marker(kind, opening, closing)   Marker("reasoning", "<think>", "</think>")
        Piece(section, kind, text)       a piece of section number `section`; a named tuple

    A text begins in section 0. A marker that counts ends the section and begins the next, whose number is one higher, even if the
    section was empty. Which markers count depends on where the text is:

    - in an answer (kind ANSWER, "answer"), every opening marker: the next section is of its kind;
    - in a section of another kind, only that kind's closing marker: the next section is an answer.

    All else is text, other markers included: "</think>" in an answer, "<tool_call>" in a reasoning. A marker that counts is in no
    piece; nothing else is left out or stripped. Where the text is cut into pushes means nothing. A marker counts at its last
    character; of several that end there, the longest.

    What is held back is exactly the longest end of the text so far that is a beginning of a marker that counts now.
    """

    def __init__(self, markers: Sequence[Marker] = MARKERS, start: str = ANSWER):
        """markers: one for each kind, their texts not empty. start: the kind of section 0: after a prompt that ends in
        "<think>", the answer begins inside a reasoning. Raises ValueError, naming start, for one that is neither ANSWER nor a
        marker's kind."""
        raise NotImplementedError

    def push(self, text: str) -> list[Piece]:
        """Take the next piece of text, perhaps "", and return what is certain now: one Piece for each section of which there is
        some, in order, none with empty text. Perhaps []."""
        raise NotImplementedError

    def flush(self) -> list[Piece]:
        """The answer ends: the text held back, as a piece of the section it is in, or []. Sections may end unclosed."""
        raise NotImplementedError
