"""A clock that moves only when it is told to, for the checks of a stopwatch: they take no time and know every answer."""

from __future__ import annotations

from shared.timing import TooFastError


class Machine:
    """A clock, and calls that move it. queued: seconds of work that were started and are waited for by synchronize()."""

    def __init__(self, read: float = 0.0, step: float = 0.0):
        self.now, self.queued, self.read, self.step = 0.0, 0.0, read, step
        self.calls, self.log = [], []

    def clock(self) -> float:
        self.now += self.read
        self.log.append("clock")
        return self.now // self.step * self.step if self.step else self.now

    def synchronize(self) -> None:
        self.now, self.queued = self.now + self.queued, 0.0
        self.log.append("sync")

    def does(self, *seconds: float, later: bool = False):
        """A function that takes these times, call by call, the last one from then on; later: starts the work and returns."""
        left = list(seconds)

        def fn(*arguments):
            self.calls.append(arguments)
            self.log.append("call")
            took = left.pop(0) if len(left) > 1 else left[0]
            if later:
                self.queued += took
            else:
                self.now += took

        return fn


def timed(lab, fn, *arguments, **options):
    """benchmark(fn, ...), where it has no reason to refuse."""
    try:
        return lab.benchmark(fn, *arguments, **options)
    except TooFastError as e:
        lines = [f"benchmark(fn, {', '.join(options)}): refused, and fn is slow enough", f"  got      TooFastError: {e}"]
        lines += ["  likely   is the clock that was given the one that is read, and the work waited for before it is?"]
        raise AssertionError("\n".join(lines)) from e


class Costly(tuple):
    """Arguments that take a while to hand over: (machine, seconds)."""

    def __iter__(self):
        self[0].now += self[1]
        return super().__iter__()
