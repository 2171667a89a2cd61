import pytest

from minillm.request import Request, SamplingParams


@pytest.fixture(scope="session")
def make_request():
    """make_request(prompt=[1, 2], output=[3], temperature=0.5, ...): a request that has come so far."""

    def make(prompt=(0,), output=(), eos=(), index=0, **params) -> Request:
        p = SamplingParams(**{"max_tokens": None, **params})
        return Request(
            "r", [*prompt, *output], len(prompt), p, 10_000, seed=p.seed or 0, eos_token_ids=frozenset(eos), index=index
        )

    return make
