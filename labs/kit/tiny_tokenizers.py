"""Three tokenizers small enough to make in a check, and texts that are hard to cut: what module 2.5's checks stream."""

from __future__ import annotations

import functools

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from minillm.model.checkpoints.dummy import byte_tokenizer
from minillm.text.tokenizer import Tokenizer

TEXTS = [
    "Bến cảng thức dậy trước cả thị trấn.",
    "👩‍👩‍👧 👍🏽 🇻🇳 ❤️",
    "def f(x):\n\treturn x**2  # 平方",
    "3.14 ½ 1,234",
    "e\u0301\u0323 không",
]


@functools.cache
def tokenizer(style: str) -> Tokenizer:
    """bytes: a token a byte. merged: byte-level BPE; some tokens end inside a character. fallback: SentencePiece's ways."""
    if style == "bytes":
        return Tokenizer(byte_tokenizer(300))
    if style == "fallback":
        return Tokenizer(_fallback())
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(TEXTS * 3, trainer)
    backend.add_special_tokens([AddedToken("<|im_end|>", special=True, normalized=False)])
    return Tokenizer(backend)


def _fallback() -> tokenizers.Tokenizer:
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghinotv", "▁a"]
    vocab = {name: i for i, name in enumerate(names)}
    backend = tokenizers.Tokenizer(models.BPE(vocab, [("▁", "a")], byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    return backend
