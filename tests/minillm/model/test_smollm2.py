"""The real SmolLM2-135M in float32: 64 greedy tokens of 20 prompts are transformers' own.

minillm generates; transformers then reads prompt and answer in one pass and must, at each position, have chosen the same
token. Equal at every position means equal greedy answers, by induction. Where transformers' two best logits lie within
TIE of each other either is right: another order of summation decides such a tie differently.
"""

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from minillm.attention import make_attention
from minillm.model.checkpoints import open_checkpoint
from minillm.model.decoder import Decoder

NEW_TOKENS, TIE = 64, 1e-3
TOLERANCE = 2e-4  # on these prompts transformers' own float32 logits lie up to 1.2e-4 from its float64 ones


def chat(user: str, system: str) -> str:
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


HELPFUL = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
SHORT = [
    "The capital of France is",
    "Once upon a time, in a village between two rivers, there lived",
    "In 1969 the first people to walk on the Moon",
    "A",
    "    \n\n\t",
    "1 1 2 3 5 8 13 21",
    "def fibonacci(n):\n    ",
    'import json\n\ndef load(path: str) -> dict:\n    """Read a JSON file."""\n',
    'SELECT name, COUNT(*) FROM users WHERE created > "2024-01-01"',
    '{"id": 17, "tags": ["a", "b"], "nested": {"x": null, "y": [1.5, -2e3',
    "Hà Nội là thủ đô của nước Việt Nam. Thành phố này",
    "Tôi thích đọc sách vào buổi tối, vì",
    "Today was great 😀🎉🚀 and tomorrow",
    "👩‍👩‍👧‍👦 family, 🇻🇳 flag,",
    "Привет, мир! 你好，世界！ مرحبا",
    chat("What is the capital of Viet Nam?", HELPFUL),
    chat("Write a haiku about a quiet morning.", ""),
    chat("Giải thích ngắn gọn: vì sao bầu trời màu xanh?", ""),
    chat("", HELPFUL),
]
LONG = "Notes of the harbour master. " + " ".join(
    f"On day {day} the {ship} came in with {day * 7 % 40} crates of {cargo}, and the wind was from the {wind}."
    for day, ship, cargo, wind in zip(
        range(1, 25),
        ["Anna", "Borealis", "Cormorant"] * 8,
        ["tea", "salt", "glass", "rope"] * 6,
        ["north", "east"] * 12,
        strict=True,
    )
)


@pytest.fixture(scope="module")
def checkpoint():
    return open_checkpoint("smollm2-135m")


@pytest.fixture(scope="module")
def encode(checkpoint):
    tokenizer = Tokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))
    return lambda text: tokenizer.encode(text).ids


@pytest.fixture(scope="module")
def theirs(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def load(checkpoint):
    def _load(attention: str) -> Decoder:
        decoder = Decoder(checkpoint.config, make_attention(attention), dtype=torch.float32)
        decoder.load_weights(checkpoint.weights())
        return decoder

    return _load


def generate(run, prefill_size: int) -> list[torch.Tensor]:
    """Extends run.sequences by NEW_TOKENS greedy tokens; returns for each sequence the logits that chose them."""
    chosen = [[] for _ in run.sequences]
    while any(len(rows) < NEW_TOKENS for rows in chosen):
        sizes = {seq: min(len(tokens) - run.computed[seq], prefill_size) for seq, tokens in enumerate(run.sequences)}
        for seq, logits in run.step(sizes).items():
            if run.computed[seq] == len(run.sequences[seq]):
                chosen[seq].append(logits[-1])
                run.sequences[seq].append(int(logits[-1].argmax()))
    return [torch.stack(rows) for rows in chosen]


def check(theirs, tokens: list[int], logits: torch.Tensor) -> None:
    """tokens: prompt and answer; logits [NEW_TOKENS, vocab] chose the answer."""
    with torch.inference_mode():
        want = theirs(torch.tensor([tokens[:-1]]), logits_to_keep=NEW_TOKENS).logits[0]
    torch.testing.assert_close(logits, want, atol=TOLERANCE, rtol=0)
    best = want.topk(2).values
    certain = best[:, 0] - best[:, 1] > TIE
    assert certain.sum() > NEW_TOKENS * 0.9, "nearly every choice should be one that can be compared"
    answer = torch.tensor(tokens[-NEW_TOKENS:])
    assert torch.equal(answer[certain], want.argmax(-1)[certain])


def test_nineteen_prompts_together(load, theirs, encode, harness, layout_kind):
    sequences = [encode(text) for text in SHORT]
    longest = max(map(len, sequences)) + NEW_TOKENS
    run = harness(load("sdpa"), layout_kind("rows", len(sequences), longest), sequences)
    for tokens, logits in zip(sequences, generate(run, prefill_size=longest), strict=True):
        check(theirs, tokens, logits)


@pytest.mark.parametrize("attention", ["sdpa", "torch"])
def test_a_long_prompt_in_chunks_over_small_blocks(load, theirs, encode, harness, layout_kind, attention):
    sequences = [encode(LONG)]
    assert len(sequences[0]) > 550
    run = harness(load(attention), layout_kind("paged", 1, len(sequences[0]) + NEW_TOKENS), sequences)
    (logits,) = generate(run, prefill_size=200)
    check(theirs, sequences[0], logits)
