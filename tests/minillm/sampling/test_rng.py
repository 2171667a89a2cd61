import numpy as np
from scipy import stats

from minillm.sampling.rng import derive_seed, philox4x32, uniform


def test_philox_gives_the_published_vectors():
    """Known-answer vectors of Random123, the authors' own library (philox4x32, 10 rounds)."""
    ones = 0xFFFFFFFF
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox4x32((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox4x32(pi, (0xA4093822, 0x299F31D0)) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_draws_are_uniform_over_positions_seeds_and_samples():
    for draws in (
        [uniform(7, position) for position in range(20_000)],
        [uniform(seed, 3) for seed in range(20_000)],
        [uniform(7, 3, index) for index in range(20_000)],
    ):
        assert 0 <= min(draws) and max(draws) < 1
        assert stats.kstest(draws, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.03


def test_every_part_of_the_key_counts():
    draws = {uniform(s, p, i) for s in (0, 1, 2**32, 2**63, -1) for p in (0, 1, 2**33) for i in (0, 1)}
    assert len(draws) == 30


def test_derived_seeds_do_not_repeat():
    assert len({derive_seed(e, n) for e in range(10) for n in range(1000)}) == 10_000
