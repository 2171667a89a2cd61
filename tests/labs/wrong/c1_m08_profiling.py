"""Mistakes planted in 1.8."""

from labs.kit.wrong import patch


def a_millisecond_or_so(subject):
    """The test one would write first: sleep, and see whether it comes out."""
    import time

    timing = subject(lambda: time.sleep(0.002), repeats=3)
    assert 0.002 <= timing.low <= timing.median <= timing.high and len(timing.samples) == 3


def three_calls(subject):
    """The test one would write first: one call of each kind, one after the other."""
    from shared.bound import Event, Trace

    events = (Event("mm", 0, 5, 500, 1), Event("mul", 5, 3, 0, 30), Event("view", 8, 1))
    assert subject(Trace(9, 100, 10, events)) == ("compute", 1, 3, 5)


WRONG = {
    "benchmark": {
        "no_warm_up": patch(
            "    for _ in range(warmup):\n        fn(*next(arguments))\n",
            "",
            "the first calls are timed, with whatever they load, compile and allocate",
        ),
        "warm_up_of_each_sample": patch(
            "            synchronize()\n            begin = clock()\n",
            "            for _ in range(warmup):\n                call(*next(arguments))\n"
            "            synchronize()\n            begin = clock()\n",
            "warmed up before every sample: four times the work, and the rotation skips inputs",
        ),
        "launches_timed": patch(
            "            synchronize()\n            found.append",
            "            found.append",
            "the clock is read while the work is under way",
        ),
        "warm_up_leaks_into_the_first": patch(
            "            synchronize()\n            begin = clock()\n",
            "            begin = clock()\n",
            "what the warm-up started is still running when the first sample begins; the median hides it",
        ),
        "waits_between_calls": patch(
            "                call(*next(arguments))\n            synchronize()\n",
            "                call(*next(arguments))\n                synchronize()\n            synchronize()\n",
            "calls that a program would overlap are run one at a time",
        ),
        "mean": patch("middle = median(samples)", "middle = sum(samples) / len(samples)", "one interruption owns the result"),
        "fastest": patch("middle = median(samples)", "middle = min(samples)", "the luckiest call is reported as the typical one"),
        "upper_of_the_middle_two": patch(
            "middle = median(samples)",
            "middle = sorted(samples)[len(samples) // 2]",
            "an even number of samples has no middle one",
        ),
        "same_input_every_sample": patch(
            "        for _ in range(repeats):\n            synchronize()",
            "        for _ in range(repeats):\n            arguments = cycle(inputs)\n            synchronize()",
            "each sample begins with the first input again, which is in the cache by now",
        ),
        "rotation_starts_after_the_warm_up": patch(
            "        fn(*next(arguments))\n    samples",
            "        fn(*next(arguments))\n    arguments = cycle(inputs)\n    samples",
            "the first timed call gets the input that the warm-up has just brought into the cache",
        ),
        "only_the_first_input": patch(
            "    arguments = cycle(inputs)\n    for", "    arguments = cycle(inputs[:1])\n    for", "no rotation at all"
        ),
        "not_divided": patch("(clock() - begin) / number", "(clock() - begin)", "a sample of many calls is reported as one call"),
        "always_the_wall_clock": patch(
            "            begin = clock()\n",
            "            clock = time.perf_counter\n            begin = clock()\n",
            "the clock that was asked for is not used",
        ),
        "sorted_samples": patch(
            "min(samples), max(samples), floor, samples)",
            "min(samples), max(samples), floor, tuple(sorted(samples)))",
            "sorted in place for the median: whether calls got slower over time cannot be seen any more",
        ),
        "floor_taken_off": patch(
            "return Timing(middle,", "return Timing(middle - floor,", "two noisy numbers are subtracted, and called exact"
        ),
        "reports_anything": patch(
            "if middle <= times_floor * floor:", "if middle <= 0:", "the stopwatch's own time is reported as the call's"
        ),
        "compares_with_one_floor": patch("times_floor * floor:", "floor:", "half stopwatch is taken for a measurement"),
        "border_is_reported": patch("if middle <= times_floor", "if middle < times_floor", "has to be above the border"),
        "floor_without_waiting": patch(
            "    floor = max(median(samples_of(_nothing, cycle(inputs))), resolution / number)\n",
            "    begin = clock()\n    floor = max(clock() - begin, resolution / number)\n",
            "two looks at the clock; what waiting and calling take is left out",
        ),
        "floor_is_the_worst": patch(
            "max(median(samples_of(_nothing", "max(max(samples_of(_nothing", "one interrupted empty sample refuses everything"
        ),
        "floor_is_the_luckiest": patch(
            "max(median(samples_of(_nothing",
            "max(min(samples_of(_nothing",
            "the median of fn is held against the best of nothing",
        ),
        "floor_is_the_last": patch(
            "median(samples_of(_nothing, cycle(inputs)))", "samples_of(_nothing, cycle(inputs))[-1]", "one empty sample is luck"
        ),
        "refused_for_its_quickest": patch(
            "if middle <= times_floor", "if min(samples) <= times_floor", "one quick call, and the result is refused"
        ),
        "floor_without_arguments": patch(
            "samples_of(_nothing, cycle(inputs))", "samples_of(_nothing, cycle([()]))", "handing out arguments takes time as well"
        ),
        "floor_of_one_input": patch(
            "samples_of(_nothing, cycle(inputs))", "samples_of(_nothing, cycle(inputs[:1]))", "not the arguments that fn gets"
        ),
        "floor_without_calls": patch(
            "                call(*next(arguments))\n",
            "                if call is not _nothing:\n                    call(*next(arguments))\n",
            "two looks at the clock, and calling is left out",
        ),
        "floor_of_more_samples": patch(
            "median(samples_of(_nothing, cycle(inputs)))",
            "median(sum((samples_of(_nothing, cycle(inputs)) for _ in range(3)), ()))",
            "as many samples of nothing as of fn, not three times as many",
        ),
        "low_and_high_trimmed": patch(
            "min(samples), max(samples), floor",
            "sorted(samples)[len(samples) // 10], sorted(samples)[-1 - len(samples) // 10], floor",
            "a tenth is cut off at both ends, and the interruptions with it",
        ),
        "resolution_ignored": patch(
            "max(median(samples_of(_nothing, cycle(inputs))), resolution / number)",
            "median(samples_of(_nothing, cycle(inputs)))",
            "on a clock in steps nothing takes no time, so that anything is above the floor",
        ),
        "resolution_of_each_call": patch(
            "resolution / number)", "resolution)", "a step of the clock is an error of the sample, not of each call in it"
        ),
        "no_inputs_accepted": patch("positive(inputs=len(inputs), repeats", "positive(repeats", "an empty rotation"),
        "negative_warm_up": patch("    not_negative(warmup=warmup, resolution=resolution)\n", "", "range(-1) is silent"),
    },
    "classify_bound": {
        "callers_counted_again": patch(
            "            own[running[-1]] -= event.duration\n",
            "            pass\n",
            "a call's time is counted in each of its callers too",
        ),
        "grandchildren_subtracted": patch(
            "            own[running[-1]] -= event.duration\n",
            "            for outer in running:\n                own[outer] -= event.duration\n",
            "every call within is taken off, not only those directly within",
        ),
        "one_return_at_a_time": patch(
            "        while running and not _within(event, events[running[-1]])",
            "        if running and not _within(event, events[running[-1]])",
            "two calls that end together: only the inner one is taken off the stack",
        ),
        "roofs_added": patch(
            "roof = max(computing, moving)", "roof = computing + moving", "moving and computing overlap in a roof"
        ),
        "touching_is_nested": patch(
            "return inner.start + inner.duration / 2 < outer.start + outer.duration",
            "return inner.start <= outer.start + outer.duration",
            "a call that begins when another ends is taken to be inside it",
        ),
        "gaps_forgotten": patch(
            '    spent["overhead"] += trace.seconds - sum(own)\n',
            "",
            "only calls are looked at, the time between them is nobody's",
        ),
        "near_of_one_refused": patch("if not 0 < near <= 1:", "if not 0 < near < 1:", "a near of 1 is allowed"),
        "negative_bandwidth": patch(
            "bandwidth=trace.bandwidth)", "bandwidth=abs(trace.bandwidth))", "bytes that come backwards get a verdict"
        ),
        "gaps_from_durations": patch(
            "trace.seconds - sum(own)",
            "max(0.0, trace.seconds - sum(e.duration for e in trace.events))",
            "nested durations add up to more than the step: no gap is left",
        ),
        "never_far_from_the_roof": patch(
            '"overhead" if roof < near * seconds or roof == 0 else "compute"',
            '"overhead" if roof == 0 else "compute"',
            "a call of a microsecond for four bytes is taken to wait for memory",
        ),
        "near_the_duration": patch(
            "roof < near * seconds or", "roof < near * event.duration or", "the roof is compared with calls within it as well"
        ),
        "near_is_always_a_tenth": patch("roof < near * seconds or", "roof < 0.1 * seconds or", "the argument is not used"),
        "excess_is_overhead": patch(
            "        spent[kind] += seconds\n",
            '        at_roof = min(seconds, roof) if kind != "overhead" else seconds\n'
            '        spent[kind] += at_roof\n        spent["overhead"] += seconds - at_roof\n',
            "whatever a call takes above its roof is called overhead: a matrix at half its peak does not wait for Python",
        ),
        "ridge_upside_down": patch(
            "if computing >= moving else", "if computing < moving else", "the shorter of the two is the bound"
        ),
        "memory_at_the_ridge": patch("if computing >= moving else", "if computing > moving else", "exactly at the ridge"),
        "any_flops_compute": patch(
            "if computing >= moving else", "if event.flops > 0 else", "whoever computes is bound by computing"
        ),
        "half_or_overhead": patch(
            "return Bound(max(spent, key=spent.__getitem__), **spent)",
            "most = max(spent, key=spent.__getitem__)\n    half = sum(spent.values()) / 2\n"
            '    return Bound(most if spent[most] > half else "overhead", **spent)',
            "a majority is asked for",
        ),
        "last_of_equals": patch(
            "max(spent, key=spent.__getitem__)", "sorted(spent, key=spent.__getitem__)[-1]", "a tie goes to the last"
        ),
        "zero_duration_work": patch(
            "roof < near * seconds or roof == 0", "roof <= near * seconds or roof == 0", "exactly near the roof is near"
        ),
        "nonsense_accepted": patch("    if not 0 < near <= 1:\n", "    if near > 1:\n", "with near=0 nothing is ever overhead"),
        "no_step_accepted": patch("positive(seconds=trace.seconds, peak_flops", "positive(peak_flops", "a step of no length"),
    },
}
HAPPY = {"benchmark": a_millisecond_or_so, "classify_bound": three_calls}
