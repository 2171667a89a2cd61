"""The real model: logprobs are the log-softmax of transformers' logits, for answers and, in chunks, for prompts."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from minillm.llm import LLM
from minillm.model.checkpoints import open_checkpoint
from minillm.request import SamplingParams

PROMPT = "Water boils at 100 degrees Celsius, and it freezes at"


@pytest.fixture(scope="module")
def reference():
    folder = open_checkpoint("smollm2-135m").folder
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def test_logprobs_are_transformers(reference):
    llm = LLM("smollm2-135m", dtype="float32", threads=1, max_model_len=256, max_num_batched_tokens=4, max_num_seqs=4)
    prompt = llm.tokenizer.encode(PROMPT)
    params = SamplingParams(
        temperature=0.9, top_k=30, seed=3, max_tokens=6, ignore_eos=True, logit_bias={260: 3.0}, repetition_penalty=1.3,
        logprobs=4, prompt_logprobs=2,
    )  # fmt: skip
    deltas = list(llm.stream(prompt, params))
    answer = [token for delta in deltas for token in delta.token_ids]
    with torch.no_grad():
        expected = reference(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
    assert len(prompt) > 8, "the prompt is to be computed in several chunks"
    reported = deltas[0].prompt_logprobs[1:] + [entries for delta in deltas for entries in delta.logprobs]
    tokens, counts = prompt[1:] + answer, [2] * (len(prompt) - 1) + [4] * len(answer)
    for row, token, count, (own, *likeliest) in zip(expected[:-1], tokens, counts, reported, strict=True):
        assert own.token_id == token and own.rank == pytest.approx(int((row > row[token]).sum()) + 1, rel=0.01, abs=0.1)
        assert own.logprob == pytest.approx(float(row[token]), abs=2e-4)
        values, ids = row.topk(count)
        assert [entry.token_id for entry in likeliest] == ids.tolist()
        assert [entry.logprob for entry in likeliest] == pytest.approx(values.tolist(), abs=2e-4)
