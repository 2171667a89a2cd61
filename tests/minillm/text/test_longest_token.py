"""The bound on a token's text holds, and none is given for a tokenizer that may drop text."""

import pytest
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from minillm.model.checkpoints.dummy import byte_tokenizer
from minillm.text import tokenizer as tokenizer_module
from minillm.text.longest_token import most_bytes_per_token


def byte_level(*more: str, added: tuple = (), **parts) -> tokenizers.Tokenizer:
    """Byte-level BPE with a token for every byte and, merged from them, for each string of more (two letters)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(word[:-1], word[-1]) for word in more]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate([*alphabet, *more])}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(added))
    for name, part in parts.items():
        setattr(backend, name, part)
    return backend


def test_bytes_not_letters_are_counted():
    assert most_bytes_per_token(byte_level()) == 1
    assert most_bytes_per_token(byte_level("Ġa", "Ġab", "Ġabc")) == 4  # "Ġ" is how a space is written: one byte
    assert most_bytes_per_token(byte_level("ab", added=("<|end|>",))) == 7
    assert most_bytes_per_token(byte_level("ab", added=("éé",))) == 4  # an added token stands for itself


@pytest.mark.parametrize(
    "backend",
    [
        byte_level(normalizer=normalizers.NFC()),
        byte_level(normalizer=normalizers.Lowercase()),
        byte_level(normalizer=normalizers.Strip()),
        byte_level(pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel()])),
        byte_level(pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Split("\n\r", "removed"), pre_tokenizers.ByteLevel()])),
        byte_level(added=(AddedToken("<x>", rstrip=True),)),
        byte_level(added=(AddedToken("<x>", lstrip=True),)),
        Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?")),
    ],
    ids=lambda backend: "",
)
def test_no_bound_where_text_may_vanish(backend):
    assert most_bytes_per_token(backend) is None


def test_the_dummy_checkpoint_s_tokenizer_has_one():
    """The server's tests count on it."""
    assert 1 <= most_bytes_per_token(byte_tokenizer(300)) < 100


def test_long_texts_get_the_same_ids(smollm2, monkeypatch):
    text = "Grüße, 世界!\n\n  def f(x): return x ** 2 🙂\t" * 40 + "<|im_end|>"
    short_way = smollm2.tokenizer.encode(text)
    monkeypatch.setattr(tokenizer_module, "LONG_TEXT", 100)
    assert smollm2.tokenizer.encode(text) == short_way
    most = smollm2.tokenizer.most_bytes_per_token
    assert most >= max(len(smollm2.tokenizer.token_bytes(i)) for i in set(short_way))
    assert len(text.encode()) <= most * len(short_way)
