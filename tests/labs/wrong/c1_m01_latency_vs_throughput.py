"""Mistakes planted in 1.1."""

from labs.kit.wrong import patch


def the_4090(subject):
    """The test one would write first: the docstring's example."""
    assert subject(1008e9, 500e-9) == 504_000


def warps_of_the_4090(subject):
    """The test one would write first: the docstring's examples."""
    assert subject(1008e9, 500e-9, 128) == 31 and subject(1008e9, 500e-9, 128, bytes_per_lane=16) == 8


def two_sides(subject):
    """The test one would write first: half of the lanes go each way, and a loop that all run equally often."""
    program = [
        ("less", "low", "lane", 16),
        ("if", "low", [("add", "x", 1, 0)], [("add", "x", 2, 0)]),
        ("while", "n", [("sub", "n", "n", 1), ("add", "x", "x", 10)]),
    ]
    run = subject(program, {"n": [2] * 32})
    assert list(run.registers["x"]) == [21] * 16 + [22] * 16
    assert [len(issue.lanes) for issue in run.trace[:4]] == [32, 32, 16, 16]


WRONG = {
    "bytes_in_flight": {
        "whole_bytes": patch(
            "return bandwidth * latency", "return int(bandwidth * latency)", "a fraction of a byte under way is a fine average"
        ),
        "guesses_the_unit": patch(
            "return bandwidth * latency",
            "return bandwidth * latency * (1e-9 if latency >= 1 else 1)",
            "a large latency is taken to be nanoseconds",
        ),
        "always_gigabytes": patch(
            "return bandwidth * latency",
            "return (bandwidth if bandwidth > 1e6 else bandwidth * 1e9) * latency",
            "a small bandwidth is taken to be GB/s",
        ),
        "nonsense_accepted": patch(
            "    positive(bandwidth=bandwidth, latency=latency)\n", "", "a negative rate times a negative time is a fine number"
        ),
        "rate_over_time": patch("return bandwidth * latency", "return bandwidth / latency", "units do not come out as bytes"),
    },
    "warps_needed": {
        "rounded_down": patch(
            "return max(1, math.ceil(number * (1 - DUST)))",
            "return max(1, math.floor(number))",
            "one warp too few never fills it",
        ),
        "bytes_rounded_down": patch(
            "each = bytes_in_flight(bandwidth, latency) / num_multiprocessors\n",
            "each = bytes_in_flight(bandwidth, latency) // num_multiprocessors\n",
            "a fraction of a byte is cut off, and the warp for it",
        ),
        "to_the_nearest": patch(
            "return max(1, math.ceil(number * (1 - DUST)))", "return max(1, round(number))", "30.76 is 31 either way, 30.2 is not"
        ),
        "float_dust": patch("number * (1 - DUST)", "number", "a last bit of a float becomes a warp"),
        "a_little_is_dust": patch("DUST = 1e-9", "DUST = 1e-2", "a hundredth of a warp is not float rounding"),
        "one_load_each": patch(
            "(LANES * bytes_per_lane * loads_per_lane)",
            "(LANES * bytes_per_lane)",
            "loads that are under way together are ignored",
        ),
        "cut_off_at_48": patch(
            "return max(1, math.ceil(number * (1 - DUST)))",
            "return min(48, max(1, math.ceil(number * (1 - DUST))))",
            "the places of one chip are taken for a law",
        ),
        "none_at_all": patch(
            "return max(1, math.ceil(number * (1 - DUST)))",
            "return math.ceil(number * (1 - DUST)) - (number < 0.1)",
            "a slow memory needs no warp",
        ),
        "whole_bytes_a_lane": patch(
            "    each = bytes_in_flight(",
            "    bytes_per_lane = max(1, int(bytes_per_lane))\n    each = bytes_in_flight(",
            "a lane's four-bit weight is half a byte",
        ),
        "three_digits_will_do": patch(
            "math.ceil(number * (1 - DUST))", "math.ceil(round(number, 3))", "rounded first, and so a little too low"
        ),
        "no_multiprocessors": patch(
            "positive(num_multiprocessors=num_multiprocessors, bytes_per_lane=bytes_per_lane, loads_per_lane=loads_per_lane)",
            "positive(num_multiprocessors=num_multiprocessors**2, bytes_per_lane=bytes_per_lane**2, "
            "loads_per_lane=loads_per_lane**2)",
            "numbers below zero are accepted",
        ),
    },
    "run_warp": {
        "exited_lanes_come_back": patch(
            "lanes = sorted(self.run(then, yes) + self.run(otherwise, no))",
            "self.run(then, yes), self.run(otherwise, no)",
            "the mask from before the if is put back, with those that have left",
        ),
        "exit_leaves_the_block": patch(
            "                    lanes = []\n", "                    return lanes\n", "exit ends the block, and not the lane"
        ),
        "exit_is_noticed_later": patch(
            "                    lanes = []\n",
            "                    gone = True\n",
            "exit is recorded, and the lane goes on",
        ),
        "asks_again_for_the_other_side": patch(
            "lanes = sorted(self.run(then, yes) + self.run(otherwise, no))",
            "after = self.run(then, yes)\n"
            "                    no = [n for n in lanes if not self.value(condition, n) and (n in no or n in after)]\n"
            "                    lanes = sorted({*after, *self.run(otherwise, no)})",
            "the condition is read again after `then` has run, and may have changed it",
        ),
        "both_sides_issued": patch(
            "            if not lanes:\n                break\n", "", "a side without lanes is issued all the same"
        ),
        "loop_mask_does_not_shrink": patch(
            "                inside, left = self.split(condition, inside)\n",
            "                inside, left = (inside, []) if self.split(condition, inside)[0] else ([], inside)\n",
            "lanes that are done go round until the slowest is",
        ),
        "last_look_is_free": patch(
            '            if inside:\n                self.issue("while", inside)\n                inside, left',
            "            if inside:\n                if self.split(condition, inside)[0]:\n"
            '                    self.issue("while", inside)\n                inside, left',
            "the look that finds 0 everywhere is not counted",
        ),
        "looks_for_nobody": patch(
            '            if inside:\n                self.issue("while", inside)\n                inside, left',
            '            if inside or self.issue("while", inside) is None:\n'
            '                inside and self.issue("while", inside)\n                inside, left',
            "a look is issued when every lane has left in the body",
        ),
        "waiting_lanes_are_lost": patch(
            "        return sorted(done)\n", "        return sorted(inside)\n", "lanes never come back from a loop"
        ),
        "waiting_lanes_out_of_order": patch(
            "        return sorted(done)\n", "        return done\n", "lanes in the order in which they left the loop"
        ),
        "computes_all_lanes": patch(
            "        for lane in lanes:  # the others' operands are not even looked at\n",
            "        for lane in range(LANES):\n",
            "the mask is for the trace only; every lane computes and writes",
        ),
        "selects_afterwards": patch(
            "        for lane in lanes:  # the others' operands are not even looked at\n"
            "            value = OPERATIONS[op](self.value(a, lane), self.value(b, lane))\n"
            "            self.registers.setdefault(target, [0] * LANES)[lane] = value\n",
            "        values = [OPERATIONS[op](self.value(a, lane), self.value(b, lane)) for lane in range(LANES)]\n"
            "        for lane in lanes:\n"
            "            self.registers.setdefault(target, [0] * LANES)[lane] = values[lane]\n",
            "all lanes compute, then some are kept: a division by zero in one that had been told to stay out",
        ),
        "writes_into_inputs": patch(
            "{name: list(values) for name, values in (inputs or {}).items()}", "dict(inputs or {})", "the caller's lists change"
        ),
        "negative_is_false": patch(
            "yes = [lane for lane in lanes if self.value(condition, lane)]",
            "yes = [lane for lane in lanes if self.value(condition, lane) > 0]",
            "the register is compared with 0 by size",
        ),
        "lane_is_read_only": patch(
            "            self.registers.setdefault(target, [0] * LANES)[lane] = value\n",
            '            if target != "lane":\n                self.registers.setdefault(target, [0] * LANES)[lane] = value\n',
            "lane is taken for a constant of the hardware",
        ),
        "always_32_threads": patch("list(range(threads))", "list(range(LANES))", "the last warp of a block is taken to be full"),
        "no_such_register_in_a_loop": patch(
            "        inside, done = self.split(condition, lanes)\n",
            "        self.registers = {condition: [1] * LANES} | self.registers\n"
            "        inside, done = self.split(condition, lanes)\n",
            "what nobody has written is taken for true by a loop",
        ),
        "a_call_for_each_round": patch(
            "        while inside:\n            inside = self.run(body, inside)\n            if inside:\n"
            '                self.issue("while", inside)\n                inside, left = self.split(condition, inside)\n'
            "                done += left\n",
            "        if inside:\n            inside = self.run(body, inside)\n            if inside:\n"
            '                self.issue("while", inside)\n                done += self.loop(condition, body, inside)\n',
            "a loop that calls itself: Python ends it after a thousand rounds",
        ),
        "exit_is_free": patch(
            "if len(self.trace) >= self.limit:",
            'if sum(issue.op != "exit" for issue in self.trace) + (op != "exit") > self.limit:',
            "an exit does not count towards the limit",
        ),
        "control_is_free": patch(
            "if len(self.trace) >= self.limit:",
            "if sum(issue.op in OPERATIONS for issue in self.trace) + (op in OPERATIONS) > self.limit:",
            "only operations count towards the limit: an empty loop never ends",
        ),
        "thirty_two_or_more": patch(
            "if len(values) != LANES]", "if len(values) < LANES]", "33 numbers for 32 lanes are accepted"
        ),
        "limit_one_too_early": patch(
            "if len(self.trace) >= self.limit:", "if len(self.trace) >= self.limit - 1:", "exactly `limit` are fine"
        ),
    },
}

HAPPY = {"bytes_in_flight": the_4090, "warps_needed": warps_of_the_4090, "run_warp": two_sides}
