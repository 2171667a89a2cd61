"""Sampling: the CPU sampler's tokens for the same seeds, positions and parameters, except next to a border."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from minillm.kernels import argmax as argmax_module
from minillm.kernels.argmax import argmax, argmax_bytes, argmax_torch
from minillm.kernels.instruments.traffic import trace
from minillm.kernels.philox import uniform_torch
from minillm.kernels.sample import sample, sample_bytes, sample_torch

from minillm.request import Request, SamplingParams
from minillm.sampling import pipeline, rng

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BORDER = 1e-6  # closer to a border than this, the last bits of exp and of sums decide


@pytest.fixture
def small_blocks(monkeypatch):
    """64 logits at a time, so that a short row is several blocks long."""
    monkeypatch.setattr(argmax_module, "BLOCK_BYTES", 256)


def draws(rows):
    """Seeds of 64 bits, positions beyond 32 bits among them, indices: [rows] int64 each."""
    seed = torch.randint(-(2**63), 2**63 - 1, (rows,))
    position = torch.where(torch.rand(rows) < 0.2, torch.randint(2**32, 2**40, (rows,)), torch.randint(0, 5000, (rows,)))
    return seed, position, torch.randint(0, 4, (rows,))


def filters(rows, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    return {
        "temperature": torch.full((rows,), temperature, dtype=torch.float32),
        "top_k": torch.full((rows,), top_k),
        "top_p": torch.full((rows,), top_p, dtype=torch.float64),
        "min_p": torch.full((rows,), min_p, dtype=torch.float32),
    }


class Placed(Request):
    """A request at a position of any size, without a prompt of this length."""

    num_tokens = property(lambda self: self.position)


def engine_tokens(logits, seed, position, index, **params):
    """What minillm's CPU sampler draws, row by row."""
    tokens = []
    for row in range(len(logits)):
        request = Placed("r", [], 0, SamplingParams(**params), 1, int(seed[row]) % 2**64, index=int(index[row]))
        request.position = int(position[row])
        tokens.append(pipeline.draw(logits[row].float(), request))
    return torch.tensor(tokens)


def nearest_border(logits, u, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """How close a row's draw is to one that could go either way, in float64: u to a border between two tokens, a weight to
    min_p, top_p to the share ahead of a token, or two different logits' weights at the nucleus' edge to each other."""
    x = logits.double()
    weight = ((x - x.max()) / temperature).exp()
    kept = x >= x.topk(top_k).values[-1] if top_k else torch.ones(len(x), dtype=torch.bool)
    distances = []
    if min_p:
        distances.append((weight[kept] / min_p - 1).abs().min())
        kept &= weight >= min_p
    weight[~kept] = 0
    if top_p < 1:
        descending, order = weight.sort(descending=True, stable=True)
        before = descending.cumsum(0) - descending
        inside = before < top_p * weight.sum()
        distances.append((before[descending > 0] / weight.sum() - top_p).abs().min())
        count = int(inside.sum())
        if count < len(x) and x[order[count - 1]] != x[order[count]]:
            distances.append(1 - descending[count] / descending[count - 1])
        weight[order[~inside]] = 0
    distances.append((weight.cumsum(0) / weight.sum() - u).abs().min())
    return float(min(distances))


def agree(logits, expected, seed, position, index, **params):
    """Same tokens, but for rows next to a border; and at most one row in ten is that."""
    rows = len(logits)
    u = uniform_torch(seed, position, index)
    near = torch.tensor([nearest_border(logits[row], float(u[row]), **params) < BORDER for row in range(rows)])
    tokens = sample(logits, seed=seed, position=position, index=index, **filters(rows, **params))
    assert ((tokens == expected) | near).all()
    assert near.sum() <= rows // 10


def test_random_numbers_are_the_engines():
    seed, position, index = draws(200)
    expected = [rng.uniform(int(s) % 2**64, int(p), int(i)) for s, p, i in zip(seed, position, index, strict=True)]
    assert uniform_torch(seed, position, index).tolist() == expected


def test_many_seeds_without_filters():
    """The kernel's own random numbers included: 150 rows over one distribution."""
    logits = (3 * torch.randn(1, 1000)).expand(150, -1)
    seed, position, index = draws(150)
    agree(logits, engine_tokens(logits, seed, position, index), seed, position, index)


COMBINATIONS = [
    {"temperature": 0.7},
    {"top_k": 10},
    {"top_k": 1},
    {"top_p": 0.9},
    {"top_p": 0.05},
    {"min_p": 0.1},
    {"top_k": 50, "top_p": 0.8, "min_p": 0.01, "temperature": 1.7},
    {"temperature": 0.01, "top_p": 0.5},
]


@pytest.mark.parametrize("params", COMBINATIONS, ids=lambda p: ",".join(p))
def test_filters(params):
    logits = 3 * torch.randn(12, 500)
    seed, position, index = draws(12)
    agree(logits, engine_tokens(logits, seed, position, index, **params), seed, position, index, **params)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("params", [{}, {"top_k": 40, "top_p": 0.7, "min_p": 0.001}], ids=["plain", "filtered"])
@pytest.mark.usefixtures("small_blocks")
def test_rows_of_many_blocks(params, dtype):
    logits = (3 * torch.randn(5, 300)).to(dtype)
    seed, position, index = draws(5)
    agree(logits, engine_tokens(logits, seed, position, index, **params), seed, position, index, **params)


@pytest.mark.parametrize("length", [1, 2, 5000])
def test_lengths(length):
    logits = torch.randn(4, length)
    seed, position, index = draws(4)
    agree(logits, engine_tokens(logits, seed, position, index, top_p=0.9), seed, position, index, top_p=0.9)


@settings(max_examples=25)
@given(
    values=st.lists(st.integers(-4, 4), min_size=1, max_size=40),
    top_k=st.integers(0, 12),
    top_p=st.sampled_from([0.1, 0.33, 0.77, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
    masked=st.integers(0, 3),
)
def test_ties(values, top_k, top_p, min_p, masked):
    """Few different logits, hence ties at the k-th one and at the nucleus' edge, and −inf among them."""
    logits = torch.tensor([float(v) for v in values] + [-math.inf] * masked)[None].repeat(3, 1)
    seed, position, index = draws(3)
    params = {"top_k": min(top_k, len(values)), "top_p": top_p, "min_p": min_p}
    expected = engine_tokens(logits, seed, position, index, **params)
    u = uniform_torch(seed, position, index)
    near = [nearest_border(row, float(x), **params) < BORDER for row, x in zip(logits, u, strict=True)]
    tokens = sample(logits, seed=seed, position=position, index=index, **filters(3, **params))
    assert ((tokens == expected) | torch.tensor(near)).all()


@pytest.mark.usefixtures("small_blocks")
def test_equal_logits_at_the_edges():
    """200 equal logits: top-k keeps all that tie with the k-th; top-p takes exactly the first 75 % or 25 %."""
    logits = torch.zeros(25, 200)
    seed, position, index = draws(25)
    u = uniform_torch(seed, position, index)
    draw = {"seed": seed, "position": position, "index": index}
    assert torch.equal(sample(logits, **filters(25, top_k=3), **draw), (200 * u).long())
    top_p = filters(25) | {"top_p": torch.tensor([0.75, 0.25, 0.75, 0.75, 0.25], dtype=torch.float64).repeat(5)}
    tokens = sample(logits, **top_p, **draw)
    assert torch.equal(tokens, (200 * top_p["top_p"] * u).long()) and tokens.max() > 128


@pytest.mark.parametrize("side", [-1, 1])
def test_two_millionths_from_a_border_the_token_is_right(side):
    """Two tokens whose border lies 2·10^-6 beside u, on either side of it."""
    seed, position, index = draws(40)
    u = uniform_torch(seed, position, index).clamp(0.01, 0.99)
    border = u + side * 2 * BORDER
    logits = torch.stack([border.log(), (1 - border).log()], dim=1).float()
    clear = uniform_torch(seed, position, index) == u
    tokens = sample(logits, torch.ones(40), seed, position, index)
    assert clear.sum() > 30 and (tokens[clear] == (0 if side > 0 else 1)).all()


def test_the_first_and_the_last_token_can_be_drawn():
    logits = torch.tensor([[0.0, -math.inf, 0.0, -math.inf]]).repeat(30, 1)
    tokens = sample(logits, torch.ones(30), *draws(30))
    assert set(tokens.tolist()) == {0, 2}


def test_rows_mix_freely():
    """Greedy, plain, filtered: each row gets what it gets alone."""
    logits = 2 * torch.randn(6, 200)
    seed, position, index = draws(6)
    own = {
        "temperature": torch.tensor([0, 1, 0.5, 1, 0, 2.0]),
        "top_k": torch.tensor([0, 0, 5, 300, 3, 20]),
        "top_p": torch.tensor([1, 1, 0.9, 0.5, 0.1, 1], dtype=torch.float64),
        "min_p": torch.tensor([0, 0.1, 0, 0, 0.5, 0.2]),
    }
    tokens = sample(logits, seed=seed, position=position, index=index, **own)
    assert torch.equal(tokens, sample_torch(logits, seed=seed, position=position, index=index, **own))
    one = {name: value[2:3] for name, value in own.items()}
    assert sample(logits[2:3], seed=seed[2:3], position=position[2:3], index=index[2:3], **one) == tokens[2]
    assert torch.equal(tokens[own["temperature"] == 0], logits[own["temperature"] == 0].argmax(-1))


@pytest.mark.parametrize("temperature", [1e-38, 1e30])
def test_extreme_temperatures(temperature):
    logits = torch.randn(8, 100)
    seed, position, index = draws(8)
    params = filters(8, temperature=temperature, top_p=0.5)
    assert torch.equal(
        sample(logits, seed=seed, position=position, index=index, **params),
        sample_torch(logits, seed=seed, position=position, index=index, **params),
    )


def test_rows_without_a_distribution_get_argmax():
    """As the engine's sampler: NaN, +inf, nothing but −inf. Their neighbours do not notice."""
    logits = torch.randn(5, 100)
    logits[0, 7] = logits[0, 9] = -torch.tensor(torch.nan)
    logits[1, 20] = logits[1, 30] = torch.inf
    logits[2] = -torch.inf
    logits[3] = torch.nan
    seed, position, index = draws(5)
    tokens = sample(logits, seed=seed, position=position, index=index, **filters(5, top_k=5, top_p=0.5))
    assert tokens[:4].tolist() == [7, 20, 0, 0]
    assert torch.equal(tokens, engine_tokens(logits, seed, position, index, top_k=5, top_p=0.5))


def test_senseless_parameters_still_give_a_token():
    """Values on the GPU are not looked at beforehand: the likeliest token stays in, whatever they are."""
    logits = torch.randn(1, 50)
    for odd in ({"top_p": 0.0}, {"top_p": -1.0}, {"min_p": 7.0}, {"min_p": math.nan}, {"top_k": -1}, {"top_p": math.nan}):
        token = int(sample(logits, seed=torch.tensor([1]), position=torch.tensor([1]), **filters(1, **odd)))
        assert 0 <= token < 50
        if odd.get("top_p", 1) <= 0 or odd.get("min_p", 0) > 1:
            assert token == logits.argmax()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 7, 100, 9000])
def test_argmax(length, dtype):
    logits = torch.randn(3, length).to(dtype)
    assert torch.equal(argmax(logits), argmax_torch(logits))


@pytest.mark.usefixtures("small_blocks")
def test_argmax_takes_the_first_of_equals():
    logits = torch.zeros(5, 300)
    logits[0, 100] = logits[0, 200] = 1  # in different blocks
    logits[1] = -torch.inf
    logits[2] = -1
    logits[2, 50], logits[2, 90] = -0.0, 0.0
    logits[3, 60], logits[3, 10] = torch.nan, torch.inf
    logits[4, 130:] = 2
    assert argmax(logits).tolist() == argmax_torch(logits).tolist() == [100, 0, 50, 60, 130]


def test_no_rows():
    none = torch.zeros(0, dtype=torch.int64)
    assert argmax(torch.zeros(0, 9)).shape == (0,)
    assert sample(torch.zeros(0, 9), torch.zeros(0), none, none).shape == (0,)


def test_rows_beyond_two_to_the_31_elements():
    """The third row begins at 2³¹, too much for 32 bits; its stride, 2³⁰, arrives in 32. Only touched pages take memory."""
    logits = torch.empty(2**31 + 64, dtype=torch.float16).as_strided((3, 16), (2**30, 1))
    logits.copy_(torch.randn(3, 16))
    assert torch.equal(argmax(logits), argmax_torch(logits))


@pytest.mark.usefixtures("small_blocks")
def test_bytes():
    logits = torch.randn(3, 300)
    seed, position, index = draws(3)
    with trace(logits=logits) as counted:
        argmax(logits)
    assert counted.report().total.bytes == argmax_bytes(3, 300, logits.dtype)
    with trace(logits=logits) as counted:
        tokens = sample(logits, seed=seed, position=position, index=index, **filters(3))
    assert counted.report().total.bytes == sample_bytes(tokens.tolist(), 300, logits.dtype)


def test_a_bisection_is_short():
    """Passes over the row: 1 for the maximum, 32 at most for top-k and 30 for top-p, 3 for its edge, 3 for the draw."""
    logits = torch.randn(1, 2000).bfloat16()
    seed, position, index = draws(1)
    with trace(logits=logits) as counted:
        sample(logits, seed=seed, position=position, index=index, **filters(1, top_k=100, top_p=0.9))
    passes = counted.report()["logits"].load_bytes / (2 * 2000)
    assert passes <= 30


def refusals():
    logits, ones, none = torch.zeros(2, 8), torch.ones(2), torch.zeros(2, dtype=torch.int64)
    yield (logits.int(), ones, none, none), TypeError, "logits is int32"
    yield (logits[0], ones, none, none), ValueError, "logits has shape"
    yield (torch.zeros(2, 0), ones, none, none), ValueError, "no columns"
    yield (torch.zeros(8, 2).T, ones, none, none), ValueError, "stride 2 in its last dimension"
    yield (logits, ones.double(), none, none), TypeError, "temperature is float64"
    yield (logits, ones[:1], none, none), ValueError, r"temperature has shape \[1\]; \[2\]"
    yield (logits, ones, none.int(), none), TypeError, "seed is int32"
    yield (logits, ones, none, none, None, None, ones), TypeError, "top_p is float32"
    yield (logits, ones, none, [1, 2]), TypeError, "position must be a torch.Tensor"


@pytest.mark.parametrize("arguments, error, message", list(refusals()))
def test_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        sample(*arguments)
