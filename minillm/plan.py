"""`minillm plan`: does a model fit on a card, for how many users at what context, and what to change if not.

Arithmetic only: nothing is loaded, and no GPU is asked. The calculators are shared/memory_plan.py.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from minillm.errors import ConfigError
from shared import budget, caches, hardware, models
from shared.layers import layers_of
from shared.memory_plan import RUNTIME_BYTES, Budget, adapter_bytes, max_concurrency, memory_budget, request_bytes, step_bytes
from shared.sources import TableError

WEIGHTS = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "int8": "int8", "int4": "int4-g128"}
KV_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
BLOCK_SIZE = 16


@dataclass(frozen=True)
class Wish:
    """What is to be served on what. context: tokens of prompt and answer together; image_tokens come on top of them.

    kv_cache_dtype None: as the arithmetic, fp32 for fp32 weights, else 16 bits. Sizes in tokens, or counts.
    Raises ConfigError for a name that is in no table, or a number that cannot be.
    """

    model: str
    gpu: str
    dtype: str = "bf16"
    context: int = 4096
    users: int = 1
    kv_cache_dtype: str | None = None
    gpu_memory_utilization: float = 0.92
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    lora_adapters: int = 0
    lora_rank: int = 16
    image_tokens: int = 0

    def __post_init__(self):
        for flag, value, known in (("dtype", self.dtype, WEIGHTS), ("kv-cache-dtype", self.kv_cache_dtype or "bf16", KV_BYTES)):
            if value not in known:
                raise ConfigError(f"--{flag} {value}: choose one of {', '.join(known)}")
        for flag in ("context", "users", "max_num_batched_tokens", "max_num_seqs", "lora_rank"):
            if getattr(self, flag) < 1:
                raise ConfigError(f"--{flag.replace('_', '-')} must be at least 1, got {getattr(self, flag)}")
        for flag in ("lora_adapters", "image_tokens"):
            if getattr(self, flag) < 0:
                raise ConfigError(f"--{flag.replace('_', '-')} must not be negative, got {getattr(self, flag)}")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(f"--gpu-memory-utilization is a share above 0 and at most 1, got {self.gpu_memory_utilization}")

    @property
    def tokens_per_user(self) -> int:
        return self.context + self.image_tokens

    @property
    def cache_dtype(self) -> str:
        return self.kv_cache_dtype or ("fp32" if self.dtype == "fp32" else "bf16")

    @property
    def activation_element_bytes(self) -> int:
        return 4 if self.dtype == "fp32" else 2


@dataclass(frozen=True)
class Plan:
    """The outcome. Bytes throughout. kv_cache_tokens: None where a token's price depends on its place (sliding windows)."""

    wish: Wish
    model_name: str
    gpu_name: str
    memory: float
    budget: Budget
    weights_by_component: dict[str, float]
    kv_bytes_per_user: float
    kv_cache_tokens: int | None
    max_users: int
    max_context: int
    notes: tuple[str, ...]
    advice: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.max_users >= self.wish.users

    def to_dict(self) -> dict[str, Any]:
        """For JSON: bytes, tokens and counts as numbers, the wish as it was read."""
        raw = asdict(self) | {"budget": self.budget._asdict(), "fits": self.fits}
        raw["label"] = "computed"
        raw["runtime_is"] = "an estimate; see shared/memory_plan.py:RUNTIME_BYTES"
        return raw


def make_plan(wish: Wish) -> Plan:
    """The budget of this wish, and where it does not fit, advice that was tried with the same calculators."""
    plan = _work_out(wish)
    return plan if plan.fits else replace(plan, advice=tuple(_advice(plan)))


def _work_out(wish: Wish) -> Plan:
    model, card, notes = _look_up(wish)
    weight_bits, kv_bytes = budget.WEIGHT_BITS[WEIGHTS[wish.dtype]], KV_BYTES[wish.cache_dtype]
    linear = budget.linear_parameters(model)
    try:
        adapters = adapter_bytes(model, wish.lora_rank, wish.lora_adapters) if wish.lora_adapters else 0.0
    except ValueError as e:
        raise ConfigError(f"{e}; leave --lora-adapters out") from e
    parts = memory_budget(
        card.memory_bytes,
        linear,
        budget.num_parameters(model) - linear,
        weight_bits=weight_bits,
        adapter_bytes=adapters,
        activation_bytes=step_bytes(model, wish.max_num_batched_tokens, wish.max_num_seqs, wish.activation_element_bytes),
        runtime_bytes=RUNTIME_BYTES,
        gpu_memory_utilization=wish.gpu_memory_utilization,
    )
    layers = layers_of(model)
    per_user = request_bytes(layers, wish.tokens_per_user, BLOCK_SIZE, kv_bytes)
    per_token = caches.kv_bytes_per_token(layers, bytes_per_element=kv_bytes)
    same_everywhere = model.sliding_window is None
    room = max(0, math.floor(parts.kv_cache / per_token))
    notes += _remarks(wish, model)
    return Plan(
        wish=wish,
        model_name=model.name,
        gpu_name=card.name,
        memory=card.memory_bytes,
        budget=parts,
        weights_by_component=_by_component(model, weight_bits),
        kv_bytes_per_user=per_user,
        kv_cache_tokens=room if same_everywhere else None,
        max_users=max_concurrency(
            layers, parts.kv_cache, wish.tokens_per_user, block_size=BLOCK_SIZE, bytes_per_element=kv_bytes
        ),
        max_context=_longest(model, layers, parts.kv_cache / wish.users, kv_bytes, wish.image_tokens),
        notes=tuple(notes),
    )


def _look_up(wish: Wish) -> tuple[models.Model, hardware.Accelerator, list[str]]:
    try:
        model = models.load(wish.model, allow_unverified=True)
        card = hardware.load(wish.gpu, allow_unverified=True)
        memory = card.fact("memory")
    except TableError as e:
        raise ConfigError(str(e)) from e
    notes = [] if memory.source.verified else [f"the memory of {card.name} is from memory and unverified"]
    try:
        models.load(wish.model)
    except TableError as e:
        notes.append(str(e).split(";")[0])
    return model, card, notes


def _remarks(wish: Wish, model: models.Model) -> list[str]:
    notes = []
    if wish.tokens_per_user > model.stated_context:
        notes.append(f"{wish.tokens_per_user:,} tokens are more than the {model.stated_context:,} this model was made for")
    if wish.max_num_seqs < wish.users:
        notes.append(f"--max-num-seqs {wish.max_num_seqs} lets fewer than {wish.users} users run at once")
    if model.moe:
        notes.append("all experts are in memory, whichever of them a token takes")
    return notes


def _by_component(model: models.Model, bits: float) -> dict[str, float]:
    """Bytes by component, those that are 0 left out. Their sum is the budget's weights."""
    shrinks = ("attention", "mlp")
    found = {name: count * (bits if name in shrinks else max(bits, 16)) / 8 for name, count in budget.parameters(model).items()}
    return {name: size for name, size in found.items() if size}


def _longest(model: models.Model, layers: tuple, bytes_per_user: float, kv_bytes: float, image_tokens: int) -> int:
    """Longest context in whole blocks whose cache fits in so many bytes, at most the model's own; 0 if not even a block does."""
    fits, too_long = 0, model.stated_context // BLOCK_SIZE + 1
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if request_bytes(layers, middle * BLOCK_SIZE, BLOCK_SIZE, kv_bytes) <= bytes_per_user:
            fits = middle
        else:
            too_long = middle
    return max(0, fits * BLOCK_SIZE - image_tokens)


def _advice(plan: Plan) -> list[str]:
    """One change at a time, each worked out again: only what then fits is offered, the mildest first."""
    wish, found = plan.wish, []
    if plan.max_users:
        found.append(f"--users {plan.max_users}: the others wait in the queue")
    if plan.max_context:
        found.append(f"--context {plan.max_context}: the longest that all {wish.users} can have")
    changes = [{"kv_cache_dtype": "fp8"}] if KV_BYTES[wish.cache_dtype] > 1 else []
    narrower = [name for name in ("bf16", "int8", "int4") if _bits(name) < _bits(wish.dtype)]
    changes += [{"dtype": name} for name in narrower]
    if changes and changes[0].keys() == {"kv_cache_dtype"} and narrower:
        changes.append({"dtype": narrower[-1], "kv_cache_dtype": "fp8"})
    for change in changes:
        other = _work_out(replace(wish, **change))
        if other.fits:
            flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in change.items())
            found.append(f"{flags}: room for {other.max_users} users; what it costs in quality must be measured")
    if card := _smallest_card(wish):
        found.append(f"--gpu {card.wish.gpu}: {card.gpu_name}, {card.memory / 1e9:.4g} GB, room for {card.max_users} users")
    elif not found:
        found.append("no single card of the table: spread the model over several (tensor parallelism, module 7.1)")
    return found


def _bits(dtype: str) -> float:
    return budget.WEIGHT_BITS[WEIGHTS[dtype]]


def _smallest_card(wish: Wish) -> Plan | None:
    """The same wish on the card of least memory that can hold it, of the same vendor if there is one."""
    with_memory = [name for name in hardware.names() if "memory" in hardware.load(name).facts]
    plans = [_work_out(replace(wish, gpu=name)) for name in with_memory]
    vendor = hardware.load(wish.gpu).name.split()[0]
    fitting = [plan for plan in plans if plan.fits]
    of_this_vendor = [plan for plan in fitting if plan.gpu_name.startswith(vendor)]
    return min(of_this_vendor or fitting, key=lambda plan: plan.memory, default=None)
