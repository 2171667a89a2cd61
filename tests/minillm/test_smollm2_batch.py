"""The real model: eight requests together equal the same eight alone."""

import pytest

from minillm.request import SamplingParams

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Hà Nội là thủ đô của",
    "😀🎉 means",
    "Once upon a time, in a small village by the sea, there lived",
    "1, 2, 3, 4,",
    "{\"name\": \"",
    "Water boils at",
]  # fmt: skip


@pytest.mark.parametrize("seeded", [False, True], ids=["greedy", "seeded"])
def test_batch_of_eight_equals_each_alone(smollm2, seeded):
    params = [
        SamplingParams(temperature=0.8, top_p=0.95, seed=100 + i, max_tokens=32)
        if seeded
        else SamplingParams(temperature=0, max_tokens=32)
        for i in range(len(PROMPTS))
    ]
    together = [g.outputs[0].token_ids for g in smollm2.generate(PROMPTS, params)]
    alone = [smollm2.generate(p, q)[0].outputs[0].token_ids for p, q in zip(PROMPTS, params, strict=True)]
    assert together == alone
