"""Mistakes planted in 2.5."""

import copy
import re

from labs.kit.wrong import patch, replace
from minillm.text.sections import ANSWER, MARKERS, Piece
from minillm.text.stop import StopChecker
from minillm.text.stream import StreamDecoder

BROKEN = "\N{REPLACEMENT CHARACTER}"


def english_streams_back(subject):
    """The test one would write first: an English sentence, a token at a time, comes back."""
    from minillm.model.checkpoints.dummy import byte_tokenizer
    from minillm.text.tokenizer import Tokenizer

    tokenizer = Tokenizer(byte_tokenizer(300))
    decoder = subject(tokenizer, tokenizer.encode("Say it."), True)
    text = "The capital of France is Paris."
    assert "".join([decoder.push(token) for token in tokenizer.encode(text)]) + decoder.flush() == text


def a_stop_string_ends_the_answer(subject):
    checker = subject(("\nUser:",), False)
    assert checker.push("Paris.") == "Paris."
    assert checker.push("\nUser: and") == "" and checker.matched == "\nUser:"


def a_thought_is_split_off(subject):
    splitter = subject()
    text = "<think>2+2</think>4"
    pieces = splitter.push(text) + splitter.flush()
    assert [(kind, text) for _, kind, text in pieces] == [("reasoning", "2+2"), ("answer", "4")]


class TokenByToken:
    """Each token's own text."""

    def __init__(self, tokenizer, prompt_token_ids, skip_special_tokens=True):
        self.tokenizer, self.skip = tokenizer, skip_special_tokens

    def push(self, token_id):
        return self.tokenizer.decode([token_id], self.skip)

    def flush(self):
        return ""


class UntilItLooksWhole(TokenByToken):
    """Tokens wait until their text does not end in U+FFFD."""

    waiting = ()

    def push(self, token_id):
        self.waiting = (*self.waiting, token_id)
        text = self.tokenizer.decode(self.waiting, self.skip)
        if text.endswith(BROKEN):
            return ""
        self.waiting = ()
        return text

    def flush(self):
        return self.tokenizer.decode(self.waiting, self.skip)


class DecodesItAllAgain(StreamDecoder):
    """Right in all it says; its work grows with the square of the answer's length."""

    seen, shown = b"", 0

    def push(self, token_id):
        if token_id in self._hidden or self._tokenizer.token(token_id) is None:
            return ""
        self.seen += self._tokenizer.token_bytes(token_id, first=self._is_first)
        self._is_first = False
        decoder = copy.deepcopy(self._utf8)
        decoder.setstate(self._utf8.getstate())
        text = decoder.decode(self.seen)
        new, self.shown = text[self.shown :], len(text)
        return new

    def flush(self):
        self._utf8.decode(self.seen)
        return super().flush()


class WaitsForTheLength(TokenByToken):
    """Waits for as many bytes as the first one of a character announces, if continuation bytes follow."""

    def __init__(self, tokenizer, prompt_token_ids, skip_special_tokens=True):
        self.known = StreamDecoder(tokenizer, prompt_token_ids, skip_special_tokens)
        self.lead, self.late = b"", ""

    def push(self, token_id):
        text = self.late + self.known.push(token_id)
        self.late = ""
        data = self.known._tokenizer.token_bytes(token_id)
        is_open = self.lead in {b"\xe0", b"\xed", b"\xf0", b"\xf4"} and len(data) == 1 and 0x80 <= data[0] < 0xC0
        self.lead = data
        if is_open and text:
            self.late, text = text, ""
        return text

    def flush(self):
        return self.late + self.known.flush()


class NothingForTheOpenPrompt(StreamDecoder):
    """Bytes that the prompt left open are taken for the prompt's own, unless they become a character."""

    def __init__(self, tokenizer, prompt_token_ids, skip_special_tokens=True):
        super().__init__(tokenizer, prompt_token_ids, skip_special_tokens)
        self.open = self._utf8.getstate()[0]

    def push(self, token_id):
        text = super().push(token_id)
        was_open, self.open = self.open, b""
        return text.removeprefix(BROKEN) if was_open else text

    def flush(self):
        text = super().flush()
        return "" if self.open else text


class StopPattern(StopChecker):
    """Each stop string is handed to `re` as it is."""

    def __init__(self, stop=(), include_stop_str_in_output=False):
        super().__init__(stop, include_stop_str_in_output)
        self.stop, self.text, self.shown = stop, "", 0

    def push(self, text):
        if self.matched is not None:
            return ""
        for char in text:
            self.text += char
            found = [s for s in self.stop if re.search(f"(?:{s})\\Z", self.text)]
            if found:
                self.matched = max(found, key=len)
                return self.text[self.shown : len(self.text) - len(self.matched) * (not self._include)]
        held = max((n for s in self.stop for n in range(len(s)) if self.text.endswith(s[:n])), default=0)
        begin, self.shown = self.shown, len(self.text) - held
        return self.text[begin : self.shown]

    def flush(self):
        return "" if self.matched is not None else self.text[self.shown :]


class EachPieceAlone:
    def __init__(self, stop=(), include_stop_str_in_output=False):
        self.stop, self.include, self.matched = stop, include_stop_str_in_output, None

    def push(self, text):
        if self.matched is not None:
            return ""
        for stop in self.stop:
            if stop in text:
                self.matched = stop
                return text[: text.index(stop) + len(stop) * self.include]
        return text

    def flush(self):
        return ""


class ShownAtOnce(EachPieceAlone):
    """Finds a stop string across pieces, but what came before the last piece is on the screen."""

    seen = ""

    def push(self, text):
        if self.matched is not None:
            return ""
        before, self.seen = len(self.seen), self.seen + text
        for stop in self.stop:
            if stop in self.seen:
                self.matched = stop
                return self.seen[before : self.seen.index(stop) + len(stop) * self.include]
        return text


class AlwaysHoldsTheLongest(EachPieceAlone):
    """Always the last len(longest stop string) - 1 characters wait, whatever they are."""

    def __init__(self, stop=(), include_stop_str_in_output=False):
        super().__init__(stop, include_stop_str_in_output)
        self.held, self.room = "", max(map(len, stop), default=1) - 1

    def push(self, text):
        if self.matched is not None:
            return ""
        seen = self.held + text
        ends = [(seen.index(s) + len(s), -len(s), s) for s in self.stop if s in seen]
        if ends:
            end, _, self.matched = min(ends)
            self.held = ""
            return seen[: end if self.include else end - len(self.matched)]
        at = max(0, len(seen) - self.room)
        self.held = seen[at:]
        return seen[:at]

    def flush(self):
        held, self.held = self.held, ""
        return held


class MarkersInOnePush:
    """Looks for markers in each push alone."""

    def __init__(self, markers=MARKERS, start=ANSWER):
        if start not in {ANSWER, *(m.kind for m in markers)}:
            raise ValueError(f"no kind {start}")
        self.markers, self.kind, self.section = markers, start, 0

    def push(self, text):
        pieces = []
        while True:
            if self.kind == ANSWER:
                counts = {m.opening: m.kind for m in self.markers}
            else:
                counts = {m.closing: ANSWER for m in self.markers if m.kind == self.kind}
            found = min(((text.find(m), m) for m in counts if m in text), default=None)
            at = len(text) if found is None else found[0]
            if at:
                pieces.append(Piece(self.section, self.kind, text[:at]))
            if found is None:
                return pieces
            self.section, self.kind, text = self.section + 1, counts[found[1]], text[at + len(found[1]) :]

    def flush(self):
        return []


class WholeSectionsOnly(MarkersInOnePush):
    """Right in what it says, but only at the end: a client sees nothing while the model writes."""

    text = ""

    def push(self, text):
        self.text += text
        return []

    def flush(self):
        text, self.text = self.text, ""
        return super().push(text)


WRONG = {
    "StreamDecoder": {
        "decodes_each_token_alone": replace(TokenByToken, "a token that is part of a character has no text of its own"),
        "waits_until_it_looks_whole": replace(
            UntilItLooksWhole, "an end in U+FFFD is taken for an open character: bad bytes, and what stands before them, wait"
        ),
        "forgets_the_prompt": patch(
            "tail = self._last_bytes(prompt_token_ids)", 'tail = b""', "a character that the prompt began comes out broken"
        ),
        "shows_the_prompt": patch(
            "self._utf8.decode(tail)  # leaves", "self._prompt = tail  # leaves", "the prompt's bytes never reach the decoder"
        ),
        "nothing_for_what_the_prompt_left_open": replace(
            NothingForTheOpenPrompt, "no U+FFFD for bytes that the prompt left open and the answer does not finish"
        ),
        "looks_one_token_back": patch("LONGEST_OPEN = 3", "LONGEST_OPEN = 1", "an open character may span two or three tokens"),
        "hidden_tokens_count_in_the_prompt": patch(
            "            if token_id not in self._hidden:\n                tail", "            if True:\n                tail",
            "the bytes of a special token that is not shown stand between the halves of a character",
        ),
        "end_of_answer_says_nothing": patch(
            'return self._utf8.decode(b"", final=True)', 'return ""', "a character left open at the end vanishes"
        ),
        "drops_bad_bytes": patch('errors="replace"', 'errors="ignore"', "bytes that are no character vanish"),
        "shows_special_tokens": patch(
            "tokenizer.special_ids if skip_special_tokens else frozenset()", "frozenset()", "skip_special_tokens is not looked at"
        ),
        "never_shows_special_tokens": patch(
            "tokenizer.special_ids if skip_special_tokens else frozenset()", "tokenizer.special_ids", "it is not looked at"
        ),
        "every_token_is_the_first": patch("        self._is_first = False\n", "", "spaces between words are dropped"),
        "always_first": patch("self._is_first = not tail", "self._is_first = True", "the space after the prompt is lost"),
        "never_first": patch("self._is_first = not tail", "self._is_first = False", "an answer to nothing begins with a space"),
        "padding_in_the_prompt_counts_as_first": patch(
            "self._is_first = not tail",
            "self._is_first = all(i in self._hidden for i in prompt_token_ids)",
            "an id without a token stands in the prompt, and the answer's first word gets a space",
        ),
        "decodes_it_all_again": replace(DecodesItAllAgain, "every push decodes the whole answer so far"),
        "waits_for_the_length": replace(WaitsForTheLength, "E0 80 can become nothing, and waits for a third byte"),
        "takes_ids_off_the_prompt": patch(
            "for token_id in reversed(token_ids):",
            "for token_id in (token_ids.pop() for _ in range(len(token_ids))):",
            "the caller's list is shorter afterwards",
        ),
        "padding_counts_as_first": patch(
            " or self._tokenizer.token(token_id) is None", "", "an id without a token uses up the first place"
        ),
    },
    "StopChecker": {
        "looks_at_each_piece_alone": replace(EachPieceAlone, "a stop string that two tokens share is never seen"),
        "taken_for_a_pattern": replace(StopPattern, "'a.c' ends an answer at 'abc'"),
        "shows_it_first_and_checks_then": replace(ShownAtOnce, "the first half of the stop string is on the screen already"),
        "always_holds_the_longest": replace(AlwaysHoldsTheLongest, "text that can begin no stop string waits all the same"),
        "starts_over_at_a_mismatch": patch(
            "self.length = self._borders[self.length - 1]  #", "self.length = 0  #", "'aab' is not found in 'aaab'"
        ),
        "end_of_answer_says_nothing": patch(
            '        held, self._held = self._held, ""\n        return held', '        return ""', "the text held back is lost"
        ),
        "says_the_end_twice": patch(
            'seen, self._held = self._held + text[: i + 1], ""', "seen = self._held + text[: i + 1]",
            "what was held back before a match is shown once more by flush",
        ),
        "shortest_counts": patch("max(completed, key=len)", "min(completed, key=len)", "'b' is cut off where 'aab' was complete"),
        "first_listed_counts": patch("max(completed, key=len)", "completed[0]", "the order of the list decides"),
        "always_cuts": patch("seen if self._include else ", "", "include_stop_str_in_output is not looked at"),
        "shows_what_follows": patch("text[: i + 1]", "text", "the rest of the piece is taken as part of the answer"),
        "goes_on_after_a_match": patch(
            'if self.matched is not None:\n            return ""', "if self.matched is not None:\n            return text",
            "text after the end is shown",
        ),
    },
    "SectionSplitter": {
        "markers_in_one_push_only": replace(MarkersInOnePush, "a marker that two tokens share is shown as text"),
        "plain_tuples": patch(
            "return [piece for piece in joined if piece.text]", "return [tuple(p) for p in joined if p.text]", "no names"
        ),
        "reasons_once": patch(
            "                self._section += 1\n",
            "                self._section += 1\n"
            "                self._kind == ANSWER or self._openings.pop('<think>', None)\n",
            "a second <think> is shown to the reader",
        ),
        "whole_sections_only": replace(WholeSectionsOnly, "nothing streams: all pieces come with the flush"),
        "opening_markers_count_everywhere": patch(
            "(self._closings[kind],)", "(self._closings[kind], *self._openings)", "a <tool_call> that reasoning mentions ends it"
        ),
        "any_closing_marker_counts": patch(
            "(self._closings[kind],)", "tuple(self._closings.values())", "</think> in a tool call's arguments ends the call"
        ),
        "stray_closings_vanish": patch(
            "{marker.opening: marker.kind for marker in markers}",
            "{m.opening: m.kind for m in markers} | {m.closing: ANSWER for m in markers}",
            "an answer cannot say </think>",
        ),
        "ignores_start": patch("self._enter(start)", "self._enter(ANSWER)", "reasoning that the template opened is shown"),
        "accepts_any_start": patch(
            "if start != ANSWER and start not in self._closings:", "if start is None:", "a misspelt start is not refused"
        ),
        "calls_run_together": patch("            self._section += 1\n", "", "two tool calls are one"),
        "end_of_answer_says_nothing": patch(
            "return _join([self._piece(self._border.flush())])", "return []", "the text held back is lost"
        ),
        "the_rest_is_answer": patch(
            "return _join([self._piece(self._border.flush())])",
            "return _join([Piece(self._section, ANSWER, self._border.flush())])",
            "the end of an unclosed reasoning is shown as answer",
        ),
        "empty_pieces": patch("return [piece for piece in joined if piece.text]", "return joined", "pieces without text"),
        "strips": patch(
            "Piece(*section, \"\".join(p.text for p in parts))", "Piece(*section, \"\".join(p.text for p in parts).strip())",
            "line breaks at a piece's border vanish, also in the middle of an answer",
        ),
    },
}  # fmt: skip

HAPPY = {
    "StreamDecoder": english_streams_back,
    "StopChecker": a_stop_string_ends_the_answer,
    "SectionSplitter": a_thought_is_split_off,
}
