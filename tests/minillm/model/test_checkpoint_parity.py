"""The real model: what `minillm pull smollm2-135m` prepared is, bit for bit, what transformers reads from the same file."""

import json

import pytest
import torch
from gguf import GGUFReader
from tokenizers import Tokenizer as RustTokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from minillm.model.checkpoints import cache_home, open_checkpoint

TEXTS = [
    "", " ", "  ", "\n", "\t\t", " \n \n\n", "\r\n", "a", " a", "a ", "a  b", "   leading", "trailing   ",
    "The capital of France is Paris.", "Don't, can't, we'll, I'd, they've", "UPPER lower MiXeD", "naïve café résumé",
    "1", "12", "123", "1234567890", "3.14159", "1,000,000.00", "2026-11-29T18:39:00Z", "x1y2z3", "½ ² ١٢٣",
    "def f(x: int) -> int:\n    return x + 1\n", "for (int i = 0; i < n; ++i) { a[i] *= 2; }", '{"a": [1, 2.5, null], "b": "c"}',
    "https://example.org/a?b=c&d=%20", "<html><body class='x'>&amp;</body></html>", "SELECT * FROM t WHERE id = 42; -- done",
    "Xin chào thế giới", "Tiếng Việt có dấu: ắ ằ ẳ ẵ ặ đ Đ", "Hôm nay trời đẹp quá, 25 độ C.", "e\u0301 (combining) ế",
    "😀", "👩‍👩‍👧‍👦 family", "🇻🇳 flag", "a😀b😀", "日本語のテキスト", "مرحبا بالعالم", "Привет, мир", "한국어",
    "<|im_start|>user\nHi<|im_end|>\n", "text<|endoftext|>text", "<|im_end|><|im_end|>", "<|im_start", "<repo_name>x<file_sep>",
    "zero\u200bwidth\u00a0nbsp", "\x00\x01\x7f", "!!!???...---___***", "a" * 300, "word " * 100,
]  # fmt: skip
CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1 = ?"}],
    [
        {"role": "user", "content": "Chào"},
        {"role": "assistant", "content": "Chào bạn 😀"},
        {"role": "user", "content": " and?\n"},
    ],
]


@pytest.fixture(scope="module")
def checkpoint():
    folder = cache_home() / "checkpoints" / "smollm2-135m"
    if not (folder / "minillm.json").is_file():
        pytest.fail("the real model is absent; run `make test`, or `minillm pull smollm2-135m` first")
    return open_checkpoint("smollm2-135m", progress=False)


@pytest.fixture(scope="module")
def gguf(checkpoint):
    return checkpoint.folder / json.loads((checkpoint.folder / "minillm.json").read_text())["gguf_path"]


@pytest.fixture(scope="module")
def rust_tokenizer(checkpoint):
    return RustTokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))


@pytest.fixture(scope="module", params=["the converted folder", "the GGUF"])
def their_tokenizer(request, checkpoint, gguf):
    if request.param == "the GGUF":
        tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder, gguf_file=gguf.name)
        tokenizer.chat_template = GGUFReader(gguf).fields["tokenizer.chat_template"].contents()  # left behind by transformers
        return tokenizer
    return AutoTokenizer.from_pretrained(checkpoint.folder)


def test_facts(checkpoint, rust_tokenizer):
    config = checkpoint.config
    assert (config.num_layers, config.hidden_size, config.intermediate_size) == (30, 576, 1536)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.rms_norm_eps, config.rope_theta, config.max_position_embeddings) == (1e-5, 100000.0, 8192)
    assert (config.eos_token_ids, config.bos_token_id, config.tie_word_embeddings) == ((2,), 1, True)
    assert config.vocab_size == rust_tokenizer.get_vocab_size() == 49152
    assert sum(t.special for t in rust_tokenizer.get_added_tokens_decoder().values()) == 17


def test_weights_equal_transformers_reading_of_the_gguf(checkpoint, gguf):
    model = AutoModelForCausalLM.from_pretrained(checkpoint.folder, gguf_file=gguf.name, dtype=torch.float32)
    theirs = dict(model.named_parameters())
    count = elements = 0
    for name, tensor in checkpoint.weights():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, theirs.pop(name).to(torch.bfloat16)), name
        count, elements = count + 1, elements + tensor.numel()
    assert not theirs
    assert (count, elements) == (272, 134_515_008)


def test_transformers_loads_the_converted_folder(checkpoint):
    model, report = AutoModelForCausalLM.from_pretrained(checkpoint.folder, output_loading_info=True)
    assert not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.dtype == torch.bfloat16
    assert model.config.rms_norm_eps == 1e-5


def test_token_ids(rust_tokenizer, their_tokenizer):
    assert len(TEXTS) >= 50
    for text in TEXTS:
        assert rust_tokenizer.encode(text).ids == their_tokenizer(text).input_ids, repr(text)


def test_decoding(rust_tokenizer, their_tokenizer):
    for text in TEXTS:
        ids = rust_tokenizer.encode(text).ids
        assert rust_tokenizer.decode(ids, skip_special_tokens=False) == text
        for skip in (False, True):
            theirs = their_tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            assert rust_tokenizer.decode(ids, skip_special_tokens=skip) == theirs


@pytest.mark.parametrize("chat", CHATS, ids=len)
@pytest.mark.parametrize("prompt", [True, False])
def test_chat_template(checkpoint, their_tokenizer, chat, prompt):
    from minillm.text.tokenizer import Tokenizer

    ours = Tokenizer.from_folder(checkpoint.folder).apply_chat_template(chat, add_generation_prompt=prompt)
    assert ours == their_tokenizer.apply_chat_template(chat, add_generation_prompt=prompt, tokenize=False)


def test_a_pulled_folder_is_not_pulled_again(checkpoint, monkeypatch):
    monkeypatch.setattr("minillm.model.checkpoints.smollm2._build", lambda *_: pytest.fail("built again"))
    assert open_checkpoint("smollm2-135m", progress=False).folder == checkpoint.folder
