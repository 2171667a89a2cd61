"""2.7 Batching: ask at every step who computes, so that a place is taken the moment it is free.

Write the method below, then run `labs check 2.7` (or `pytest labs/c2/test_m07_batching.py`). Stuck? `labs hint 2.7`.
When it passes, the engine can run it: `minillm serve --scheduler continuous --mine`.

Of a request (minillm.request.Request) you need

    request.num_tokens           tokens known so far: the prompt, and what has been generated
    request.num_computed_tokens  how many of these have their keys and values in the cache. The difference is what is left to
                                 compute: 1 while it decodes, more while it still has (a part of) its prompt before it
    request.note_scheduled()     to be called once when it is admitted

and of the cache (self.kv, minillm.kv.base.KVCache)

    start(request, keep_free=n) -> bool  give a waiting request a beginning, if n blocks stay free beside all it knows; may
                                         raise num_computed_tokens, where it finds the prompt's beginning computed already
    allocate(request, n) -> bool         room for its next n tokens. False: no room now, nothing changed
    commit(request, n)                   these n tokens are computed in this step
    free(request)                        take everything back
"""

from __future__ import annotations

from bisect import insort  # noqa: F401  yours to use

from labs.kit import exercise
from minillm.scheduler import SchedulePlan, Scheduler


@exercise(reference="minillm.schedulers:ContinuousScheduler", part="scheduler.continuous")
class ContinuousScheduler(Scheduler):
    """Each step asks anew who computes: all that run, and whoever fits into the places that have become free.

    Iteration-level scheduling (Yu et al., Orca, OSDI 2022). The engine calls, over and over: add(request) for what arrives,
    schedule() for a plan, then the model, then update(plan, tokens), which books the tokens, and frees whoever is done.

    All but the decision is inherited from minillm.scheduler.Scheduler, whose own schedule() is module 3.2's: do not call it.

        self.kv, self.config  the cache; max_num_seqs and max_num_batched_tokens, which is a step's *budget* of tokens
        self.waiting          list of requests that hold no cache, in the order in which they are served; the first is the next
        self.running          list of those that hold cache, in that same order. Keep it: insort(self.running, r, key=self.order)
        self._share(request, budget)  tokens left to compute of it, at most budget (and at most what
                                      config.long_prefill_token_threshold allows): ask it, whenever you give out tokens
        self._preempt_last(plan)      the last of self.running loses its cache, goes back to self.waiting, and is noted in
                                      plan.preempted. (It is never in the plan yet, if you fill that in running's order.)
        self._keep_free               blocks to be left free when one is admitted beside others
    """

    def schedule(self) -> SchedulePlan:
        """Who computes how many tokens in the next step. Begin with plan = SchedulePlan(), which is empty: nothing to do; then
        plan.add(request, n) for each, n at least 1.

        First those that run, in their order. *Each of them is in the plan*, so that nobody misses a step: a request gets its
        share of what is left of the budget when one token is set aside for each running request behind it. If
        the cache has no room for its share, the last running request gives way, and the next to last, until there is room or
        the request has given way itself. (The share need not be reckoned anew for that.)

        Then, unless somebody gave way in this step (he needs the room first), those that wait, from the head of the queue, as
        long as fewer than config.max_num_seqs run and budget is left. The head is admitted if all this holds:

        - kv.start(head, keep_free=...) is True, with self._keep_free if anybody runs, else 0: alone, it may fill the cache;
        - what is left to compute of it (only now known) fits into what is left of the budget. If it does not, it waits
          for a later step, whole; but if it exceeds even a whole step's budget, it is computed in pieces of whatever is left,
          beginning now; that only if config.enable_chunked_prefill is True (else it waits);
        - kv.allocate of its share is True.

        It then moves from waiting to running, is in the plan with its share, and note_scheduled() is called. If it fails after
        start, kv.free(head) and num_computed_tokens = 0: it holds nothing, and waits. **If the head is not admitted, nobody
        behind it is**, however small.

        kv.commit(request, n) for every request of the plan before you return. For one that was just admitted with more than one
        token, commit also at once: the next in the queue may begin with the same text and share it in this very step.
        (A second commit of the same tokens does nothing. One single token is never committed at once: it may be a decode's.)

        A place that update() freed is thus filled in the next step, and the newcomer computes in it.
        """
        raise NotImplementedError
