"""Shapes of published models, from shared/models.toml: what arithmetic about memory and time needs, and nothing else.

    model = load("llama-3.1-8b")
    model.num_layers, model.num_kv_heads, model.head_dim        (32, 8, 128)

Every value has a source (`model.source_of("num_layers")`). A model whose shapes were written from memory is refused unless
asked for with allow_unverified=True: a computation must not rest on a number nobody looked up.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shared.sources import Source, TableError, UnverifiedError, read_sources, source_named

TABLE = Path(__file__).with_name("models.toml")


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): ranks and head dimensions, in elements."""

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class Moe:
    """Mixture of experts: routed experts of which each token takes some, and shared ones that every token takes."""

    num_experts: int
    num_active: int  # routed experts a token
    expert_size: int  # intermediate size of one expert
    num_shared: int = 0
    num_dense_layers: int = 0  # the first layers, which have an ordinary MLP of intermediate_size instead
    router_bias: bool = False
    expert_bias: bool = False


@dataclass(frozen=True)
class Model:
    """One decoder. Sizes in elements; sliding_window and max_context in tokens.

    With `mla`, num_kv_heads and head_dim say nothing about the cache. With `moe`, intermediate_size is that of the dense layers.
    """

    id: str
    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int  # rows of the embedding matrix, padding included
    stated_context: int
    tied: bool = False  # the head is the embedding matrix
    qk_norm: bool = False  # RMSNorm over each head of q and k
    attention_bias: bool = False  # on q, k, v and o
    attention_sinks: bool = False  # one learned logit a head
    norms_per_layer: int = 2
    sliding_window: int | None = None
    num_window_layers: int = 0
    mla: Mla | None = None
    moe: Moe | None = None
    published_params: float | None = None  # as its authors give it, often rounded
    aliases: tuple[str, ...] = ()
    source: str = ""
    other_sources: Mapping[str, str] = field(default_factory=dict)  # field -> source, where it is not `source`

    @property
    def max_context(self) -> int:
        """Tokens the model was made for. Raises UnverifiedError where nobody looked it up; stated_context has it anyway."""
        if not self.source_of("stated_context").verified:
            raise UnverifiedError(
                f"{self.id}: the context length {self.stated_context} is from memory and unverified; "
                "read stated_context if you will use it all the same"
            )
        return self.stated_context

    @property
    def num_moe_layers(self) -> int:
        return self.num_layers - self.moe.num_dense_layers if self.moe else 0

    def source_of(self, name: str) -> Source:
        """Where a field's value comes from. Raises TableError for a field there is no such of."""
        if name not in {f.name for f in fields(self)}:
            raise TableError(f"a model has no field {name!r}")
        return source_named(_table()[0], self.other_sources.get(name, self.source))


def load(name: str, *, allow_unverified: bool = False) -> Model:
    """A model by its id or an alias. Raises TableError for an unknown one, UnverifiedError for shapes written from memory."""
    models = _table()[1]
    found = models.get(name) or next((m for m in models.values() if name in m.aliases), None)
    if found is None:
        raise TableError(f"there is no model {name!r} in {TABLE.name}; it has {', '.join(models)}")
    doubtful = [f.name for f in fields(found) if f.name != "stated_context" and not found.source_of(f.name).verified]
    if doubtful and not allow_unverified:
        raise UnverifiedError(
            f"{name}: {_shorten(doubtful)} unverified ({found.source_of(doubtful[0]).title}); "
            "pass allow_unverified=True and say so beside the result"
        )
    return found


def names() -> tuple[str, ...]:
    """All ids, in the order of the table; aliases not included."""
    return tuple(_table()[1])


def _shorten(items: list[str]) -> str:
    head = ", ".join(items[:3])
    return f"{head} and {len(items) - 3} more are" if len(items) > 3 else f"{head} {'are' if len(items) > 1 else 'is'}"


@cache
def _table() -> tuple[Mapping[str, Source], Mapping[str, Model]]:
    raw = tomllib.loads(TABLE.read_text("utf-8"))
    sources = read_sources(raw.pop("sources"), TABLE.name)
    models = {name: _model(name, entry, sources) for name, entry in raw.items()}
    return MappingProxyType(sources), MappingProxyType(models)


def _model(name: str, entry: dict[str, Any], sources: Mapping[str, Source]) -> Model:
    entry = dict(entry)
    try:
        for part, kind in (("mla", Mla), ("moe", Moe)):
            if part in entry:
                entry[part] = kind(**entry[part])
        model = Model(id=name, **entry | {"aliases": tuple(entry.get("aliases", ()))})
    except TypeError as e:
        raise TableError(f"{TABLE.name}, [{name}]: {e}") from e
    known = {f.name for f in fields(Model)}
    for what, source in {"source": model.source, **model.other_sources}.items():
        if what not in known:
            raise TableError(f"{TABLE.name}, [{name}]: other_sources names {what!r}, which is no field")
        source_named(sources, source)
    return model
