"""Mistakes planted in 2.3."""

from labs.kit.conformance.requests import make_request
from labs.kit.tiny_model import TINY, generate
from labs.kit.wrong import patch


def one_request_is_served(subject):
    """The test one would write first: a single request gets its row, is computed to its end, and gives the row back."""
    import torch

    kv = subject(TINY, 2, 16, torch.float32)
    request = make_request([5, 6, 7])
    assert kv.start(request) and len(request.block_ids) == 1 and kv.allocate(request, 3)
    kv.free(request)
    [answer] = generate(kv, [[5, 6, 7]], [4], 1, 100)
    assert len(answer.token_ids) == 7


WRONG = {
    "ContiguousKV": {
        "row_never_comes_back": patch(
            "            self._free.append(row)\n", "", "free forgets the request and loses its row: the server fills up"
        ),
        "row_handed_out_twice": patch("row = self._free.pop()", "row = self._free[-1]", "the row stays in the free list"),
        "row_freed_twice": patch(
            "row = self._held.pop(request.request_id, None)",
            "row = self._held.pop(request.request_id, self._free[0] if self._free else None)",
            "freeing a request that holds nothing adds a row: the list of free rows grows",
        ),
        "admits_too_long": patch(" or request.num_tokens > self.block_size", "", "start does not look at the length"),
        "counts_the_prompt_only": patch(
            "request.num_tokens > self.block_size",
            "request.num_prompt_tokens > self.block_size",
            "a request that gave way comes back with generated tokens that do not fit",
        ),
        "last_slot_unused": patch(
            "request.num_computed_tokens + num_new_tokens <= self.block_size",
            "request.num_computed_tokens + num_new_tokens < self.block_size",
            "an off-by-one: the row is called full a token too early",
        ),
        "one_token_too_many": patch(
            "request.num_computed_tokens + num_new_tokens <= self.block_size",
            "request.num_computed_tokens + num_new_tokens <= self.block_size + 1",
            "an off-by-one: the last token is written into the next row",
        ),
        "forgets_what_is_computed": patch(
            "request.num_computed_tokens + num_new_tokens <= self.block_size",
            "num_new_tokens <= self.block_size",
            "allocate looks at the new tokens alone",
        ),
        "lists_its_row_after_free": patch("            request.block_ids = []\n", "", "block_ids names another's row"),
        "ignores_keep_free": patch("len(self._free) < 1 + keep_free", "len(self._free) < 1", "keep_free is not looked at"),
        "keeps_one_too_few": patch("len(self._free) < 1 + keep_free", "len(self._free) < max(1, keep_free)", "off by one"),
        "usage_by_tokens": patch(
            "return len(self._held) / self.num_blocks",
            "return 1 - len(self._free) / (self.num_blocks + 1)",
            "the row for padding is counted as if a request could have it",
        ),
        "hands_out_the_padding_row": patch(
            "sorted(range(num_blocks), reverse=True)",
            "sorted(range(1, num_blocks + 1), reverse=True)",
            "rows are numbered from one: the last is the one that padding writes to",
        ),
        "moves_while_it_grows": patch(
            "        return request.num_computed_tokens + num_new_tokens <= self.block_size  # a row never grows",
            "        fits = request.num_computed_tokens + num_new_tokens <= self.block_size\n"
            "        if fits and self._free:\n"
            "            self._free.insert(0, self._held[request.request_id])\n"
            "            self._held[request.request_id] = self._free.pop()\n"
            "            request.block_ids = [self._held[request.request_id]]\n"
            "        return fits",
            "allocate takes a fresh row, and what was computed stays behind in the old one",
        ),
        "integrity_is_not_checked": patch(
            "assert sorted(rows) == list(range(self.num_blocks))", "assert rows is not None", "check_integrity cannot fail"
        ),
        "integrity_of_a_set": patch(
            "assert sorted(rows) == list(range(self.num_blocks))", "assert set(rows) == set(range(self.num_blocks))",
            "a row that is there twice is not noticed",
        ),
        "integrity_by_counting": patch(
            "assert sorted(rows) == list(range(self.num_blocks))", "assert len(rows) == self.num_blocks",
            "one row missing and another twice add up",
        ),
        "forget_frees_all_rows": patch(
            '        """Nothing to do either."""',
            "        self._free = sorted(range(self.num_blocks), reverse=True)\n        self._held.clear()",
            "running requests lose their rows to others",
        ),
        "fits_alone_wants_a_free_row": patch(
            "return num_tokens <= self.block_size", "return bool(self._free) and num_tokens <= self.block_size",
            "while all rows are taken, every new request is refused for good",
        ),
        "start_counts_from_zero": patch(
            "request.block_ids = [row]\n", "request.block_ids = [row]\n        request.num_computed_tokens = 0\n",
            "start takes the count out of the engine's hands",
        ),
        "free_counts_from_zero": patch(
            "request.block_ids = []\n", "request.block_ids = []\n            request.num_computed_tokens = 0\n",
            "free takes the count out of the engine's hands",
        ),
        "commit_counts": patch(
            '        """Nothing to do: rows are never shared."""',
            "        request.num_computed_tokens += num_new_tokens",
            "commit counts what the engine counts, too",
        ),
        "reserves_the_longest_answer": patch(
            "request.num_tokens > self.block_size",
            "request.num_prompt_tokens + request.max_tokens > self.block_size",
            "a request waits for ever because its answer might become too long",
        ),
        "forgets_the_answer": patch(
            "request.block_ids = []\n",
            "request.block_ids = []\n            del request.token_ids[request.num_prompt_tokens - 1 :]\n",
            "free throws tokens away that the request needs when it comes back",
        ),
        "always_on_the_cpu": patch("block_size, dtype, device)", "block_size, dtype)", "the device is not passed on"),
    }
}  # fmt: skip

HAPPY = {"ContiguousKV": one_request_is_served}
