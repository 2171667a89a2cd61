"""tokenizer.json and tokenizer_config.json from GGUF metadata, for byte-level BPE."""

from __future__ import annotations

from typing import Any

from gguf import TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from minillm.errors import CheckpointError
from minillm.model.checkpoints.gguf_file import GgufFile

# How text is cut into pieces before merging; llama.cpp stores only a name for it (tokenizer.ggml.pre).
_WORDS = (  # contractions | word | digits | punctuation with its line ends | line ends | spaces; {n} digits make a piece
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{n}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(digits: str) -> list[pre_tokenizers.PreTokenizer]:
    pattern = Regex(_WORDS.replace("{n}", digits))
    return [pre_tokenizers.Split(pattern, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


_PRE_TOKENIZERS = {
    "gpt-2": lambda: [_gpt2()],
    "smollm": lambda: [pre_tokenizers.Digits(individual_digits=True), _gpt2()],
    "llama-bpe": lambda: _split("{1,3}"),
    "qwen2": lambda: _split(""),
}


def build_tokenizer(gguf: GgufFile) -> Tokenizer:
    """The tokenizer that the file describes. Raises CheckpointError if it is not a byte-level BPE that we can rebuild."""
    model, pre = gguf.require("tokenizer.ggml.model"), gguf.get("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise CheckpointError(
            f"{gguf.path.name}: tokenizer {model!r} with pre-tokenizer {pre!r} cannot be rebuilt (known: gpt2 with {known}); "
            "use the model's safetensors checkpoint, which brings its tokenizer.json"
        )
    tokens, merges = gguf.require("tokenizer.ggml.tokens"), gguf.require("tokenizer.ggml.merges")
    kinds = gguf.get("tokenizer.ggml.token_type", [TokenType.NORMAL] * len(tokens))
    try:
        # UNUSED entries only pad the vocabulary to the embedding's height; no text may turn into them.
        vocab = {token: i for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != TokenType.UNUSED}
        # Llama 3's vocabulary holds words that no chain of merges reaches, hence ignore_merges.
        bpe = models.BPE(vocab, [tuple(m.split(" ", 1)) for m in merges], ignore_merges=pre == "llama-bpe")
    except Exception as e:  # tokenizers raises bare Exceptions
        raise CheckpointError(
            f"{gguf.path.name}: its vocabulary and merges do not fit together ({e}); fetch the file again"
        ) from e
    tokenizer = Tokenizer(bpe)
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_PRE_TOKENIZERS[pre]())
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, kinds, strict=True):  # whole in any text: control tokens, and words the author added
        if kind in (TokenType.CONTROL, TokenType.USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=kind == TokenType.CONTROL, normalized=False)])
    if _adds_bos(gguf):
        bos = _special_token(gguf, "bos")
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, vocab[bos])]
        )
    return tokenizer


def tokenizer_config(gguf: GgufFile) -> dict[str, Any]:
    """The contents of tokenizer_config.json: special tokens by role, and the chat template."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        if (token := _special_token(gguf, key)) is not None:
            config[f"{role}_token"] = token
    config["add_bos_token"] = _adds_bos(gguf)
    config["model_max_length"] = gguf.require(f"{gguf.architecture}.context_length")
    if template := gguf.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config


def _adds_bos(gguf: GgufFile) -> bool:
    """llama.cpp's default differs by pre-tokenizer: only Llama 3's adds one unasked."""
    wanted = gguf.get("tokenizer.ggml.add_bos_token", gguf.get("tokenizer.ggml.pre") == "llama-bpe")
    return wanted and gguf.get("tokenizer.ggml.bos_token_id") is not None


def _special_token(gguf: GgufFile, role: str) -> str | None:
    index, tokens = gguf.get(f"tokenizer.ggml.{role}_token_id"), gguf.require("tokenizer.ggml.tokens")
    if index is None:
        return None
    if index >= len(tokens):
        raise CheckpointError(
            f"{gguf.path.name}: {role}_token_id {index} is outside its {len(tokens)} tokens; fetch the file again"
        )
    return tokens[index]
