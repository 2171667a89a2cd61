"""Checks of interconnects: rings of threads that never guess at time, one ring over real sockets, and lines through noise."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.kit import checks
from labs.kit.compare import assert_close, assert_equal, assert_raises
from shared.transports import MemoryNetwork, PeerLost, run_ranks

SIZES = (0, 1, 2, 3, 5, 7, 8, 1000, 1001)


def parts(ranks, n, dtype=np.float32, seed=0):
    """Each rank's values: of very different magnitudes, so that the order of summation shows."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((ranks, n)) * 10.0 ** rng.integers(-3, 4, (ranks, n))
    return list(values.astype(dtype))


def finished(lab, values, network=None):
    """What every rank returned. An error on any of them fails the check, in words."""
    ranks = len(values)
    results = run_ranks(lambda t: lab.ring_all_reduce(values[t.rank], t), ranks, network=network or MemoryNetwork(ranks))
    said = f"{ranks} ranks, {len(values[0])} elements"
    for rank, result in enumerate(results):
        if isinstance(result, NotImplementedError):
            raise result
        if isinstance(result, PeerLost) and "deadlock" in str(result):
            raise AssertionError(
                f"{said}: deadlock. Every rank waits for another: begin to send (isend), then receive, and only then wait()"
            )
        if isinstance(result, PeerLost):
            raise AssertionError(
                f"{said}: {result}, before it had sent or taken all that you counted on; do all ranks take as many steps?"
            )
        if isinstance(result, BaseException):
            raise AssertionError(f"{said}: rank {rank} raised {type(result).__name__}: {result}")
        assert isinstance(result, np.ndarray), f"{said}: rank {rank} returned {result!r}, expected an array; is a return missing?"
    return results


def exact_sum(values):
    return np.sum([v.astype(np.float64) for v in values], axis=0)


@checks("ring_all_reduce")
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n", SIZES)
def test_every_rank_gets_the_sum(lab, ranks, n):
    values = parts(ranks, n)
    for rank, result in enumerate(finished(lab, values)):
        said = f"rank {rank} of {ranks}, {n} elements"
        hint = "does every part travel size - 1 steps, twice? And do parts of unequal length line up on all ranks?"
        assert_equal(result.shape, (n,), "the shape of the result", inputs=said)
        largest = np.abs(values).sum(axis=0).max(initial=1.0)
        assert_close(result, exact_sum(values), "the sum", atol=1e-6 * largest, rtol=1e-5, inputs=said, hint=hint)


@checks("ring_all_reduce")
@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("n", [1, 7, 1001])
def test_all_ranks_agree_to_the_last_bit(lab, ranks, n):
    for seed in range(5):
        results = finished(lab, parts(ranks, n, seed=seed))
        for rank in range(1, ranks):
            different = int((results[rank].view(np.uint32) != results[0].view(np.uint32)).sum())
            assert_equal(
                different, 0, f"elements in which rank {rank} and rank 0 differ",
                inputs=f"{ranks} ranks, {n} float32 elements",
                hint="each part must be added up in one order only, and then copied: a sum that every rank makes for itself "
                "rounds differently on each",
            )  # fmt: skip


@checks("ring_all_reduce")
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32, np.int64, np.uint8, np.complex64])
def test_the_dtype_is_kept(lab, dtype):
    unit = 1 + 2j if dtype is np.complex64 else 1
    values = [((np.arange(10) + rank) * unit).astype(dtype) for rank in range(3)]
    said = f"3 ranks, {np.dtype(dtype)}"
    for result in finished(lab, values):
        assert_equal(result.dtype, np.dtype(dtype), "the dtype of the result", inputs=said)
        assert_equal(result.tolist(), (values[1] * 3).tolist(), "the sum", inputs=said, hint="add up in the dtype of values")
    recorded = [None] * 3

    def run(transport):
        recorded[transport.rank] = Recorded(transport)
        return lab.ring_all_reduce(values[transport.rank], recorded[transport.rank])

    run_ranks(run, 3)
    for seen in recorded:
        hint = "wider messages cost more bytes, whatever the result is cast to in the end"
        assert_equal(seen.dtypes, {np.dtype(dtype)}, "dtypes of the messages", inputs=said, hint=hint)


@checks("ring_all_reduce")
def test_large_integers_stay_exact(lab):
    values = [np.full(5, 2**53 + 1 + rank, np.int64) for rank in range(2)]
    expected = [2**54 + 3] * 5
    for result in finished(lab, values):
        hint = "float64 has 53 bits: integers go through no float"
        assert_equal(result.tolist(), expected, "the sum", inputs="2 ranks, int64 near 2**53", hint=hint)


@checks("ring_all_reduce")
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_values_given_do_not_change(lab, ranks):
    values = parts(ranks, 9)
    before = [v.copy() for v in values]
    results = finished(lab, values)
    for rank in range(ranks):
        said = f"{ranks} ranks, 9 elements"
        assert_equal(values[rank].tolist(), before[rank].tolist(), "values after the call", inputs=said, hint="work on a copy")
        assert not np.shares_memory(results[rank], values[rank]), f"{said}: the result is the array given, expected a new one"


@checks("ring_all_reduce")
def test_every_second_element_of_a_larger_array(lab):
    values = [v[::2] for v in parts(3, 14)]
    for result in finished(lab, values):
        assert_close(result, exact_sum(values), "the sum", atol=1e-2, rtol=1e-5, inputs="3 ranks, values[::2] of 14 elements")


@checks("ring_all_reduce")
@pytest.mark.parametrize("ranks, n", [(2, 1000), (3, 1000), (3, 1001), (5, 1001), (4, 2), (3, 1), (1, 10)])
def test_only_neighbours_and_no_more_than_needed(lab, ranks, n):
    network = MemoryNetwork(ranks)
    finished(lab, parts(ranks, n), network)
    said, longest = f"{ranks} ranks, {n} elements", -(-n // ranks)
    for source, to, elements in network.messages:
        assert_equal(to, (source + 1) % ranks, f"the receiver of rank {source}'s message", inputs=said)
        hint = "whole arrays that go around cost size / 2 times as much: send one part in each step"
        assert elements <= longest, (
            f"{said}: rank {source} sent a message of {elements} elements, expected at most {longest}; {hint}"
        )
    for rank in range(ranks):
        sent = sum(source == rank for source, _, _ in network.messages)
        assert sent <= 2 * (ranks - 1), f"{said}: rank {rank} sent {sent} messages, expected at most {2 * (ranks - 1)}"


@checks("ring_all_reduce")
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_handle_is_waited_for(lab, ranks):
    network = MemoryNetwork(ranks)
    finished(lab, parts(ranks, 12), network)
    assert_equal(
        network.abandoned, [], "messages (sender, receiver) that were begun and not waited for",
        inputs=f"{ranks} ranks, 12 elements",
        hint="a rank that returns without wait() may leave before its last message does, and its neighbour waits in vain",
    )  # fmt: skip


class Recorded:
    """A transport that writes down what one rank sends, and how many of its messages are under way when it receives."""

    def __init__(self, transport):
        self.inner, self.rank, self.size = transport, transport.rank, transport.size
        self.dtypes, self.under_way, self.at_recv = set(), 0, []

    def isend(self, values, to):
        self.dtypes.add(values.dtype)
        self.under_way += 1
        return _Handle(self, self.inner.isend(values, to))

    def recv(self, out, source):
        self.at_recv.append(self.under_way)
        self.inner.recv(out, source)


class _Handle:
    def __init__(self, recorded, inner):
        self.recorded, self.inner = recorded, inner

    def wait(self):
        self.inner.wait()
        self.recorded.under_way -= 1


@checks("ring_all_reduce")
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_both_directions_are_under_way_at_once(lab, ranks):
    values, recorded = parts(ranks, 24), [None] * ranks

    def run(transport):
        recorded[transport.rank] = Recorded(transport)
        return lab.ring_all_reduce(values[transport.rank], recorded[transport.rank])

    for result in run_ranks(run, ranks):
        if isinstance(result, BaseException):
            raise result
    for rank, seen in enumerate(recorded):
        said = f"rank {rank} of {ranks}, 24 elements"
        idle = sum(under_way == 0 for under_way in seen.at_recv)
        hint = (
            "begin to send before you receive and wait() after it: a link's two directions are there to be used at the same time"
        )
        assert_equal(idle, 0, "receives during which nothing of this rank was under way", inputs=said, hint=hint)


class SlowToTake:
    """A transport whose recv comes late: what was sent is read only after the sender has had time to change it."""

    def __init__(self, transport):
        self.inner, self.rank, self.size = transport, transport.rank, transport.size

    def isend(self, values, to):
        return self.inner.isend(values, to)

    def recv(self, out, source):
        threading.Event().wait(0.01 if self.rank == 0 else 0)
        self.inner.recv(out, source)


@checks("ring_all_reduce")
def test_what_is_under_way_is_not_written_to(lab):
    values = parts(3, 9)
    results = run_ranks(lambda t: lab.ring_all_reduce(values[t.rank], SlowToTake(t)), 3)
    for rank, result in enumerate(results):
        if isinstance(result, BaseException):
            raise result
        said = f"rank {rank} of 3, of which rank 0 receives late"
        hint = "the transport reads the array when the receiver takes it: leave it alone until wait() returns"
        assert_close(result, exact_sum(values), "the sum", atol=1e-2, rtol=1e-5, inputs=said, hint=hint)


@checks("ring_all_reduce")
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_dead_peer_is_an_error_on_every_rank(lab, ranks):
    """Rank 1 dies at its first, second, ... call: nobody may hang, and nobody may return a sum that lacks it."""
    for at in range(4 * (ranks - 1)):
        network = MemoryNetwork(ranks, dies={1: at})
        values = parts(ranks, 12)
        results = run_ranks(lambda t, values=values: lab.ring_all_reduce(values[t.rank], t), ranks, network=network)
        said = f"{ranks} ranks, rank 1 dies at its call number {at} of isend and recv"
        for rank in set(range(ranks)) - {1}:
            result = results[rank]
            if isinstance(result, NotImplementedError):
                raise result
            if isinstance(result, np.ndarray):  # it may have had all it needed before
                hint = "let PeerLost through: a part of the sum looks like a sum"
                assert_close(
                    result, exact_sum(values), f"what rank {rank} returned", atol=1e-2, rtol=1e-5, inputs=said, hint=hint
                )
            else:
                kind = type(result).__name__
                assert isinstance(result, PeerLost), (
                    f"{said}: rank {rank} ended with {kind} ({result}), expected PeerLost, let through"
                )
        if at == 0:
            lost = [isinstance(results[rank], PeerLost) for rank in range(ranks) if rank != 1]
            assert all(lost), f"{said}, before it sent anything: a rank returned a sum that cannot be one; let PeerLost through"


@checks("ring_all_reduce")
@pytest.mark.parametrize("ranks", [2, 3])
def test_over_real_sockets(lab, ranks):
    """gloo, as torch.distributed uses it on CPUs."""
    import torch.distributed as dist

    from shared.gloo import GlooTransport

    store, values, results = dist.HashStore(), parts(ranks, 1001), [None] * ranks

    def run(rank):
        try:
            results[rank] = lab.ring_all_reduce(values[rank], GlooTransport(store, rank, ranks, timeout=8))
        except Exception as e:  # noqa: BLE001  told below, on the main thread
            results[rank] = e

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    said = f"{ranks} ranks over gloo, 1,001 elements"
    for rank, result in enumerate(results):
        if isinstance(result, NotImplementedError):
            raise result
        assert isinstance(result, np.ndarray), f"{said}: rank {rank} ended with {result!r}, expected an array"
        assert_close(result, exact_sum(values), "the sum", atol=1e-2, rtol=1e-5, inputs=f"rank {rank}, {said}")
        assert_equal(result.tobytes() == results[0].tobytes(), True, f"rank {rank} and rank 0 agree bit for bit", inputs=said)


LINK = (5e-6, 1 / 20e9)
SWEEP = [2.0**k for k in range(10, 25, 2)]


@checks("alpha_beta_fit")
@pytest.mark.parametrize("alpha, beta", [LINK, (3e-4, 1e-9), (0.0, 1e-9), (1e-5, 0.0), (1.0, 1.0)])
def test_a_line_comes_back(lab, alpha, beta):
    got = lab.alpha_beta_fit(SWEEP, [alpha + n * beta for n in SWEEP])
    said = f"times exactly on alpha={alpha:g}, beta={beta:g}, 1 KiB to 16 MiB"
    assert_close(got[0], alpha, "alpha", atol=1e-10, rtol=1e-6, inputs=said)
    assert_close(got[1], beta, "beta", atol=1e-18, rtol=1e-6, inputs=said, hint="seconds a byte, not bytes a second")


@checks("alpha_beta_fit")
def test_the_example_of_the_docstring(lab):
    got = lab.alpha_beta_fit([0, 1000], [1e-6, 3e-6])
    assert_close(got, (1e-6, 2e-9), "alpha_beta_fit([0, 1000], [1e-6, 3e-6])", atol=1e-14, rtol=1e-6)


@checks("alpha_beta_fit")
def test_what_is_given_stays_as_it_is(lab):
    sizes, seconds = [4000.0, 1000.0, 2000.0], [9e-6, 3e-6, 5e-6]
    said = f"sizes {sizes}, seconds {seconds}"
    got = lab.alpha_beta_fit(sizes, seconds)
    hint = "the caller still needs them in their order: sort copies, if at all"
    assert_equal((sizes, seconds), ([4000.0, 1000.0, 2000.0], [9e-6, 3e-6, 5e-6]), "the lists after the call", said, hint=hint)
    try:
        again = lab.alpha_beta_fit(tuple(sizes), tuple(seconds))
    except (TypeError, AttributeError) as e:
        raise AssertionError(f"{said}, as tuples: {type(e).__name__}: {e}; a sequence need not be a list") from e
    assert_close(again, got, "the same as tuples", atol=0, rtol=1e-9, inputs=said)


@checks("alpha_beta_fit")
def test_noise_of_the_largest_message_leaves_alpha_alone(lab):
    alpha, beta = LINK
    for factor in (0.8, 1.25):
        seconds = [alpha + n * beta for n in SWEEP]
        seconds[-1] *= factor
        got, _ = lab.alpha_beta_fit(SWEEP, seconds)
        assert_close(
            got, alpha, "alpha", atol=0, rtol=0.15,
            inputs=f"an exact line, except that the 16 MiB message took {factor:g} times as long",
            hint="minimise relative errors: divide each equation by its own time first",
        )  # fmt: skip


def loss(alpha, beta, sizes, seconds):
    return sum(((alpha + n * beta - t) / t) ** 2 for n, t in zip(sizes, seconds, strict=True))


TIMED = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 64.0, 1e3, 8192.0, 1e6, 16e6]), st.floats(1e-6, 1e-1)), min_size=2, max_size=8
)


@checks("alpha_beta_fit")
@given(timed=TIMED.filter(lambda timed: len({n for n, _ in timed}) > 1))
def test_no_other_line_is_better(lab, timed):
    sizes, seconds = [n for n, _ in timed], [t for _, t in timed]
    alpha, beta = lab.alpha_beta_fit(sizes, seconds)
    said = f"sizes {sizes}, seconds {[float(f'{t:.3g}') for t in seconds]}"
    assert alpha >= 0 and beta >= 0, f"{said}: got alpha={alpha:g}, beta={beta:g}, expected neither below zero"
    mine = loss(alpha, beta, sizes, seconds)
    scale_a, scale_b = max(seconds), max(seconds) / max(sizes)
    for da in (-1e-2, -1e-4, 0, 1e-4, 1e-2):
        for db in (-1e-2, -1e-4, 0, 1e-4, 1e-2):
            a, b = max(0.0, alpha + da * scale_a), max(0.0, beta + db * scale_b)
            better = loss(a, b, sizes, seconds)
            assert better > mine - 1e-6 * (1 + mine), (
                f"{said}: got alpha={alpha:g}, beta={beta:g} with a sum of squared relative errors of {mine:g}, expected the "
                f"least; alpha={a:g}, beta={b:g} has {better:g}. If one came out negative, it is 0 and the other is fitted again"
            )


@checks("alpha_beta_fit")
def test_a_negative_latency_becomes_none(lab):
    sizes, seconds = [1000.0, 2000.0, 4000.0], [1e-6, 3e-6, 8e-6]
    alpha, beta = lab.alpha_beta_fit(sizes, seconds)
    assert_equal(alpha, 0.0, "alpha", inputs=f"sizes {sizes}, seconds {seconds}: the free line would begin below zero")
    b = [n / t for n, t in zip(sizes, seconds, strict=True)]
    best = sum(b) / sum(x * x for x in b)
    assert_close(beta, best, "beta", atol=0, rtol=1e-6, inputs="the same", hint="fit beta again, for alpha = 0")


@checks("alpha_beta_fit")
def test_faster_when_larger_means_no_bandwidth(lab):
    sizes, seconds = [1000.0, 2000.0, 4000.0], [9e-6, 8e-6, 5e-6]
    alpha, beta = lab.alpha_beta_fit(sizes, seconds)
    a = [1 / t for t in seconds]
    assert_equal(beta, 0.0, "beta", inputs=f"sizes {sizes}, seconds {seconds}: the free line falls")
    best = sum(a) / sum(x * x for x in a)
    assert_close(alpha, best, "alpha", atol=0, rtol=1e-6, inputs="the same", hint="fit alpha again, for beta = 0")


@checks("alpha_beta_fit")
@pytest.mark.parametrize(
    "sizes, seconds",
    [
        ([], []),
        ([1.0], [1.0]),
        ([5.0, 5.0], [1.0, 2.0]),
        ([1.0, 2.0], [1.0]),
        ([-1.0, 2.0], [1.0, 2.0]),
        ([1.0, 2.0], [0.0, 1.0]),
        ([1.0, 2.0], [-1.0, 1.0]),
        ([1.0, 2.0], [1.0, float("nan")]),
    ],
)
def test_nonsense_is_refused(lab, sizes, seconds):
    assert_raises(ValueError, lambda: lab.alpha_beta_fit(sizes, seconds), f"alpha_beta_fit({sizes}, {seconds})")
