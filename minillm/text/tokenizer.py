"""Text to token ids and back, with everything a checkpoint's tokenizer files say about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from minillm.errors import RequestError
from minillm.text.chat import ChatTemplate
from minillm.text.longest_token import most_bytes_per_token
from minillm.text.token_bytes import TokenBytes
from minillm.text.tokenizer_files import read_tokenizer_files

LONG_TEXT = 10_000  # characters; a few milliseconds


class Tokenizer:
    """A `tokenizers` tokenizer with its special tokens and chat template; gives the ids that transformers' AutoTokenizer gives.

    Special tokens in a text are read as special tokens, in a user's message too: whoever writes "<|im_end|>" into one
    ends that turn. transformers and vLLM do the same. A server that must not allow it has to clean its input.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special_tokens: Mapping[str, str] | None = None,
        chat_templates: Mapping[str, str] | None = None,
    ):
        """special_tokens: {"bos_token": "<s>", ...}; chat_templates: Jinja source by name, see ChatTemplate."""
        self._backend = backend
        self._special_tokens = dict(special_tokens or {})
        self._chat_template = ChatTemplate(chat_templates or {}, self._special_tokens)
        self._token_bytes = TokenBytes(backend)
        self.special_ids = frozenset(i for i, token in backend.get_added_tokens_decoder().items() if token.special)

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """From a checkpoint's folder. Raises CheckpointError if its tokenizer files are missing or unreadable."""
        return cls(*read_tokenizer_files(Path(path)))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """add_special_tokens: put a beginning-of-sequence token in front if this model wants one (tokenizer.json's
        post-processor decides). Raises RequestError for text that has no UTF-8 form."""
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise RequestError(f"the text holds half a surrogate pair, {text[e.start]!r}, at character {e.start}") from e
        if len(text) > LONG_TEXT:  # of the library's functions only those for batches let other threads run meanwhile
            return self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Bytes that are no character give U+FFFD. For text that grows token by token, see StreamDecoder."""
        return self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def apply_chat_template(self, messages: Any, add_generation_prompt: bool = True, **variables: Any) -> str:
        """The conversation as the model was trained to read it; see ChatTemplate.render. To get ids, use encode_chat."""
        return self._chat_template.render(messages, add_generation_prompt, **variables)

    def encode_chat(self, messages: Any, add_generation_prompt: bool = True, **variables: Any) -> list[int]:
        """Token ids of a conversation. A template writes its own BOS, so none is added: two of them would be a
        prompt that the model has never seen."""
        return self.encode(self.apply_chat_template(messages, add_generation_prompt, **variables), add_special_tokens=False)

    def token(self, token_id: int) -> str | None:
        """The token's name in the vocabulary ("Ġthe", "▁the", "<0x0A>"), or None where there is none."""
        return self._backend.id_to_token(token_id)

    def token_bytes(self, token_id: int, first: bool = False) -> bytes:
        """The bytes of UTF-8 text the token stands for; first: as the first token of a sequence. See TokenBytes."""
        return self._token_bytes(token_id, first)

    @cached_property
    def most_bytes_per_token(self) -> int | None:
        """No token stands for more bytes of text; None where that cannot be known. See minillm.text.longest_token."""
        return most_bytes_per_token(self._backend)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included. The model's own vocab_size may be larger: padding."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    @property
    def bos_token_id(self) -> int | None:
        return self._special_id("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        """The tokenizer's; which tokens end an answer is in ModelConfig.eos_token_ids."""
        return self._special_id("eos_token")

    @property
    def has_chat_template(self) -> bool:
        return bool(self._chat_template)

    def _special_id(self, name: str) -> int | None:
        token = self._special_tokens.get(name)
        return None if token is None else self._backend.token_to_id(token)
