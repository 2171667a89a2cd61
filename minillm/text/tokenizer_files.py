"""The tokenizer files of a Hugging Face checkpoint, read as transformers reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken

from minillm.errors import CheckpointError


class TokenizerFiles(NamedTuple):
    backend: tokenizers.Tokenizer
    special_tokens: dict[str, str]  # {"bos_token": "<s>", ...}
    chat_templates: dict[str, str]  # Jinja source by name


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Raises CheckpointError if tokenizer.json is missing or any of the files cannot be read.

    Whether encoding adds a BOS token is up to tokenizer.json's post-processor alone. tokenizer_config.json may hold an
    add_bos_token too, but transformers (5) ignores it beside a tokenizer.json, and so do we.
    """
    backend = _read_backend(folder / "tokenizer.json")
    config = _read_config(folder)
    try:
        special = _special_entries(config)
        _add_tokens(backend, config, list(special.values()))
        backend.encode_special_tokens = bool(config.get("split_special_tokens", False))
        special_tokens = {name: _content(entry) for name, entry in special.items()}
        return TokenizerFiles(backend, special_tokens, _chat_templates(folder, config))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise CheckpointError(f"tokenizer_config.json in {folder} has an unknown form ({type(e).__name__}: {e})") from e


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; minillm needs a tokenizer.json beside the model's weights")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as e:  # the library raises bare Exception
        raise CheckpointError(f"{path} cannot be read ({e}); is the download complete?") from e
    backend.no_truncation()  # some files carry the settings of their training run
    backend.no_padding()
    return backend


def _read_config(folder: Path) -> dict[str, Any]:
    config = _read_json(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in config:  # older checkpoints keep the names of special tokens apart
        config |= _read_json(folder / "special_tokens_map.json")
    return config


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise CheckpointError(f"{path} is not valid JSON ({e}); is the download complete?") from e
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object")
    return content


Entry = str | dict[str, Any]  # a token as the config describes it: its content, or {"content": ..., "lstrip": ..., ...}


def _special_entries(config: dict[str, Any]) -> dict[str, Entry]:
    """What the config calls bos_token, eos_token, pad_token ..., model-specific ones (image_token) included."""
    named = {name: entry for name, entry in config.items() if name.endswith("_token")}
    if isinstance(config.get("extra_special_tokens"), dict):
        named |= config["extra_special_tokens"]
    return {name: entry for name, entry in named.items() if isinstance(entry, str | dict)}  # add_bos_token is a bool


def _add_tokens(backend: tokenizers.Tokenizer, config: dict[str, Any], special: list[Entry]) -> None:
    """Tell the backend of tokens that only the config knows. What tokenizer.json says of a token stands."""
    described = sorted(config.get("added_tokens_decoder", {}).items(), key=lambda item: int(item[0]))
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    special = special + (extra if isinstance(extra, list) else [])
    special_contents = {_content(entry) for entry in special}
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    for entry in [*(entry for _, entry in described), *special]:
        if _content(entry) not in known:
            backend.add_tokens([_added_token(entry, is_special=_content(entry) in special_contents)])
            known.add(_content(entry))


def _content(entry: Entry) -> str:
    return entry if isinstance(entry, str) else entry["content"]


def _added_token(entry: Entry, is_special: bool) -> AddedToken:
    if isinstance(entry, str):
        return AddedToken(entry, special=is_special, normalized=False)
    flags = {name: entry[name] for name in ("single_word", "lstrip", "rstrip", "normalized") if name in entry}
    return AddedToken(entry["content"], special=is_special or entry.get("special", False), **flags)


def _chat_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Template files take the place of what tokenizer_config.json holds: one template, or a list of named ones."""
    files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    if files:
        return {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    template = config.get("chat_template") or {}
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}
    return {"default": template} if isinstance(template, str) else dict(template)
