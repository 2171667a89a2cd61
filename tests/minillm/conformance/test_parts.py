"""Every part that has a suite passes it: references, alternatives, and whatever is registered next."""

import pytest

from labs.kit.conformance import checks, has_suite
from minillm.parts import PARTS, PROTOCOLS

WITH_SUITE = [name for name, part in PARTS.items() if part.inside is None and has_suite(name)]


@pytest.mark.parametrize("part, check", [(p, c) for p in WITH_SUITE for c in checks(p)], ids=lambda x: getattr(x, "__name__", x))
def test_conforms(part, check):
    check(PARTS[part].load())


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if part.slot in PROTOCOLS and part.inside is None])
def test_a_protocol_has_a_suite(name):
    assert has_suite(name), f"{name} has a protocol, and nothing in labs/kit/conformance tests it"


def test_the_slots_of_an_engine_have_suites():
    assert {"attention", "kv", "scheduler", "sampling", "text"} == {name.split(".")[0] for name in WITH_SUITE}
