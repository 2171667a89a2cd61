"""Tokenizers of the kinds that checkpoints bring: SmolLM2's own, and small ones trained here in the style of the others."""

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from minillm.model.checkpoints import pull
from minillm.text.tokenizer import Tokenizer

TEXTS = [
    "The capital of France is Paris.",
    " leading space, and trailing ",
    "def f(x):\n\treturn x ** 2  # square\n\n\nprint(f(12345))",
    '{"a": [1, 2.50, -3e-7], "b": null}',
    "Hà Nội là thủ đô của nước Việt Nam, ướt đẫm mưa phùn.",
    "e\u0301 and o\u0302\u0323: combining marks, not precomposed",
    "family 👨‍👩‍👧‍👦, flag 🇻🇳🇫🇷, skin 👍🏽, heart ❤️",
    "日本語と中文和한국어",
    "tabs\t\t spaces     and\r\nnew\n\n\nlines   ",
    "a€b £ ½ ∑ ← \N{REPLACEMENT CHARACTER} \x00 \x7f",
    "a",
    " ",
]
CORPUS = [*TEXTS, "the cat sat on the mat and the hat", "từ ngữ tiếng Việt", "return the value of the function"]


def _trained(pre_tokenizer, alphabet=(), size=400) -> dict:
    """A BPE trained on CORPUS; its model section: {"vocab", "merges"}."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), limit_alphabet=300, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    return json.loads(backend.to_str())["model"]


def _specials(backend: tokenizers.Tokenizer, *names: str) -> None:
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])


def _bos_first(backend: tokenizers.Tokenizer, bos: str) -> processors.PostProcessor:
    return processors.TemplateProcessing(f"{bos} $A", f"{bos} $A $B", [(bos, backend.token_to_id(bos))])


def llama2_style() -> tokenizers.Tokenizer:
    """SentencePiece's ways: "▁" for spaces, one put before the first word, and byte tokens for what the vocabulary lacks."""
    pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    trained = _trained(pre_tokenizers.Metaspace(), size=60)
    rare = {token for token in trained["vocab"] if not token.isascii() and token.strip("▁").isalpha()}  # left to the byte tokens
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += [token for token in trained["vocab"] if token not in rare] + ["\N{REPLACEMENT CHARACTER}"]
    vocab = {name: i for i, name in enumerate(dict.fromkeys(names))}
    merges = [tuple(m) for m in trained["merges"] if {*m, "".join(m)} <= vocab.keys()]
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    _specials(backend, "<unk>", "<s>", "</s>")
    backend.post_processor = _bos_first(backend, "<s>")
    return backend


def metaspace_style() -> tokenizers.Tokenizer:
    """As llama2_style, with the decoder that newer SentencePiece conversions have."""
    backend = llama2_style()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", "first")])
    return backend


def llama3_style() -> tokenizers.Tokenizer:
    """Byte-level BPE whose post-processor puts a BOS in front."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained = _trained(byte_level, pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab=trained["vocab"], merges=[tuple(m) for m in trained["merges"]]))
    backend.pre_tokenizer, backend.decoder = byte_level, decoders.ByteLevel()
    _specials(backend, "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    bos = "<|begin_of_text|>"
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), _bos_first(backend, bos)])
    return backend


def qwen_style() -> tokenizers.Tokenizer:
    """Byte-level BPE with NFC and no BOS, and tokens added that are not special."""
    backend = llama3_style()
    trained = json.loads(backend.to_str())["model"]
    backend = tokenizers.Tokenizer(models.BPE(vocab=trained["vocab"], merges=[tuple(m) for m in trained["merges"]]))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    _specials(backend, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
    backend.add_tokens([AddedToken(name, special=False, normalized=False) for name in ("<think>", "</think>")])
    return backend


STYLES = {"llama2": llama2_style, "metaspace": metaspace_style, "llama3": llama3_style, "qwen": qwen_style}
CONFIGS = {
    "llama2": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True},
    "metaspace": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": False},
    "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "qwen": {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False},
}


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory):
    """make_folder(style, chat_template=..., ...): a folder with tokenizer.json and, of the keywords, tokenizer_config.json."""

    def make(style: str, **config) -> Path:
        folder = tmp_path_factory.mktemp(style)
        STYLES[style]().save(str(folder / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **CONFIGS[style], **config}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder

    return make


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    return pull("smollm2-135m", progress=False)


@pytest.fixture(scope="session")
def folders(make_folder, smollm2_folder) -> dict[str, Path]:
    return {"smollm2": smollm2_folder, **{style: make_folder(style) for style in STYLES}}


@pytest.fixture(scope="session")
def all_tokenizers(folders) -> dict[str, Tokenizer]:
    return {name: Tokenizer.from_folder(folder) for name, folder in folders.items()}


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return TEXTS
