"""Random numbers that depend on what is drawn, never on what was drawn before.

A counter-based generator is a pure function of (seed, counter). Keyed by a request's seed and the position of the token
to be chosen, a draw cannot be changed by batch-mates, by the order of scheduling, or by a preemption that replays it.

Philox-4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. Also what torch uses on CUDA and
Triton uses in tl.rand.
"""

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds of Philox on four 32-bit counter words with a key of two. Returns four random 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def random_words(seed: int, position: int, index: int = 0) -> tuple[int, int, int, int]:
    """Four 32-bit words for one draw. seed: 64 bits; position: of the token in its sequence; index: which of n samples."""
    return philox4x32((position & _MASK, (position >> 32) & _MASK, index & _MASK, 0), (seed & _MASK, (seed >> 32) & _MASK))


def uniform(seed: int, position: int, index: int = 0) -> float:
    """One double in [0, 1) with 53 random bits."""
    high, low, _, _ = random_words(seed, position, index)
    return ((high << 32 | low) >> 11) * 2.0**-53


def derive_seed(engine_seed: int, request_number: int) -> int:
    """A 64-bit seed for a request that named none: the engine's seed and the request's serial number decide it."""
    high, low, _, _ = philox4x32(
        (request_number & _MASK, request_number >> 32, 0, 1), (engine_seed & _MASK, engine_seed >> 32 & _MASK)
    )
    return high << 32 | low
