"""What a model is (ModelConfig, from its config.json) and how to run it (EngineConfig, from flags)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minillm.errors import CheckpointError, ConfigError

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.x frequency scaling (rope_type "llama3"): long wavelengths are stretched by `factor`."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a dense decoder, with one name for each thing whatever the checkpoint calls it."""

    model_type: str  # llama, mistral, qwen2 or qwen3
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int  # not always hidden_size / num_heads (Qwen3)
    max_position_embeddings: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    qkv_bias: bool = False  # Qwen2
    o_bias: bool = False  # Llama's attention_bias puts one on o_proj too
    mlp_bias: bool = False
    qk_norm: bool = False  # Qwen3: RMSNorm over each head of q and k
    sliding_window: int | None = None  # tokens; attention reaches this far back
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    torch_dtype: str | None = None  # as stored: "bfloat16", "float16", "float32"

    def __post_init__(self):
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim")
        for name in (*sizes, "max_position_embeddings"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise CheckpointError(f"config.json gives {name} as {value!r}; it must be a positive whole number")
        for name in ("rms_norm_eps", "rope_theta"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0:
                raise CheckpointError(f"config.json gives {name} as {value!r}; it must be a positive number")

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of K and V for one token over all layers; times the dtype's size: bytes."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @classmethod
    def from_hf(cls, raw: dict[str, Any]) -> ModelConfig:
        """From the contents of a Hugging Face config.json. Raises CheckpointError for what this engine cannot run."""
        names = raw.get("architectures") or []
        arch = next((a for a in names if a in ARCHITECTURES), None)
        if arch is None:
            known = ", ".join(ARCHITECTURES)
            raise CheckpointError(f"architecture {names or raw.get('model_type')!r} is not supported; minillm runs {known}")
        kind = ARCHITECTURES[arch]
        try:
            hidden, heads = raw["hidden_size"], raw["num_attention_heads"]
            eos = raw.get("eos_token_id")
            config = cls(
                model_type=kind,
                vocab_size=raw["vocab_size"],
                hidden_size=hidden,
                intermediate_size=raw["intermediate_size"],
                num_layers=raw["num_hidden_layers"],
                num_heads=heads,
                num_kv_heads=raw.get("num_key_value_heads") or heads,
                head_dim=raw.get("head_dim") or hidden // heads,
                max_position_embeddings=raw["max_position_embeddings"],
                rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
                rope_theta=_rope(raw).get("rope_theta", 10000.0),
                rope_scaling=_rope_scaling(raw),
                tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
                qkv_bias=kind == "qwen2" or (kind in ("llama", "qwen3") and bool(raw.get("attention_bias", False))),
                o_bias=kind in ("llama", "qwen3") and bool(raw.get("attention_bias", False)),
                mlp_bias=kind == "llama" and bool(raw.get("mlp_bias", False)),
                qk_norm=kind == "qwen3",
                sliding_window=_sliding_window(raw, kind),
                bos_token_id=raw.get("bos_token_id"),
                eos_token_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,),
                torch_dtype=raw.get("torch_dtype") or raw.get("dtype"),
            )
        except KeyError as e:
            raise CheckpointError(f"config.json lacks {e.args[0]!r}; is the download complete?") from e
        except (TypeError, ZeroDivisionError) as e:
            raise CheckpointError(f"config.json holds a value that cannot be used ({e}); is it the original one?") from e
        if raw.get("hidden_act", "silu") != "silu":
            raise CheckpointError(f"hidden_act {raw['hidden_act']!r} is not supported; minillm runs silu")
        if _rope(raw).get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
            raise CheckpointError("rotary embedding of a part of each head (partial_rotary_factor) is not supported")
        if config.num_heads % config.num_kv_heads:
            raise CheckpointError(f"{config.num_heads} attention heads cannot share {config.num_kv_heads} key-value heads evenly")
        return config


def _rope(raw: dict) -> dict:
    """transformers 5 keeps theta and scaling together in rope_parameters; older files keep them apart."""
    return {"rope_theta": raw.get("rope_theta", 10000.0), **(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}


def _rope_scaling(raw: dict) -> RopeScaling | None:
    rope = _rope(raw)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise CheckpointError(f"rope scaling {kind!r} is not supported; minillm runs 'default' and 'llama3'")
    return RopeScaling(
        rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    )


def _sliding_window(raw: dict, kind: str) -> int | None:
    """One window for all layers, or none; transformers applies it for Mistral, and for Qwen where use_sliding_window says so."""
    if kind == "llama" or (kind.startswith("qwen") and not raw.get("use_sliding_window", False)):
        return None
    if kind.startswith("qwen") or len(set(raw.get("layer_types") or ())) > 1:
        raise CheckpointError("a sliding window in some layers only is not supported; minillm runs one kind for all layers")
    return raw.get("sliding_window", 4096)  # absent is not null: transformers' default for Mistral


DTYPES = ("auto", "float32", "bfloat16", "float16")
LOAD_FORMATS = ("auto", "dummy")
QUANTIZATIONS = (None, "int8", "int4")
KERNELS = ("auto", "torch", "triton")
LINEARS = ("torch", "triton")


@dataclass(frozen=True)
class EngineConfig:
    """How to run a model. Every field is a flag of the same name; names are vLLM's where vLLM has one."""

    model: str = "smollm2-135m"
    dtype: str = "auto"
    load_format: str = "auto"
    revision: str | None = None
    max_model_len: int | None = None  # tokens of prompt and answer together; None: what the model was trained for
    max_num_seqs: int = 32  # requests running at once
    max_num_batched_tokens: int = 2048  # tokens computed in one step, shared by all running requests
    attention: str = "auto"  # triton where kernels are, else sdpa
    kernels: str = "auto"  # of the small operators, attention and quantized linears: triton on a GPU, else torch
    linear: str = "torch"  # matrix products of unquantized weights: by cuBLAS or oneDNN, or by our kernels
    kv: str = "paged"
    scheduler: str = "token_budget"
    scheduling_policy: str = "fcfs"  # or "priority"
    block_size: int = 16  # tokens a cache block
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0  # longest chunk of one prompt in a step; 0: only the budget limits it
    watermark: float = 0.01  # share of the cache left free when a request is admitted beside others
    kv_cache_memory_bytes: int | None = None  # None: measured, see minillm.kv.sizing
    gpu_memory_utilization: float = 0.92  # share of a GPU's memory for weights, activations and cache together
    quantization: str | None = None  # weights only: int8, or int4 in groups
    quantization_group_size: int = 32  # of int4
    enforce_eager: bool = False  # never use compiled graphs
    seed: int = 0
    threads: int | None = None  # None: the CPU quota of this process

    def __post_init__(self):
        if self.dtype not in DTYPES:
            raise ConfigError(f"--dtype {self.dtype}: choose one of {', '.join(DTYPES)}")
        if self.load_format not in LOAD_FORMATS:
            raise ConfigError(f"--load-format {self.load_format}: choose one of {', '.join(LOAD_FORMATS)}")
        if self.kernels not in KERNELS:
            raise ConfigError(f"--kernels {self.kernels}: choose one of {', '.join(KERNELS)}")
        if self.linear not in LINEARS:
            raise ConfigError(f"--linear {self.linear}: choose one of {', '.join(LINEARS)}")
        if self.scheduling_policy not in ("fcfs", "priority"):
            raise ConfigError(f"--scheduling-policy {self.scheduling_policy}: choose fcfs or priority")
        if self.quantization not in QUANTIZATIONS:
            raise ConfigError(f"--quantization {self.quantization}: choose one of {', '.join(q for q in QUANTIZATIONS if q)}")
        if self.linear == "triton" and self.quantization:
            raise ConfigError(
                f"--linear triton is for weights as they were loaded, and --quantization {self.quantization} stores all in "
                "fewer bits: drop one (with --quantization, our kernels come with --kernels triton)"
            )
        if self.quantization_group_size not in (32, 64, 128):
            raise ConfigError(f"--quantization-group-size {self.quantization_group_size}: choose 32, 64 or 128")
        if not 0 <= self.watermark < 1:
            raise ConfigError(f"--watermark must be at least 0 and below 1; got {self.watermark}")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(f"--gpu-memory-utilization must be above 0 and at most 1; got {self.gpu_memory_utilization}")
        if self.long_prefill_token_threshold < 0:
            raise ConfigError(f"--long-prefill-token-threshold must not be negative; got {self.long_prefill_token_threshold}")
        if self.long_prefill_token_threshold and not self.enable_chunked_prefill:
            raise ConfigError(
                "--long-prefill-token-threshold cuts prompts into chunks, and --no-enable-chunked-prefill forbids it; drop one"
            )
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "threads", "block_size", "kv_cache_memory_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} must be at least 1; got {value}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"--max-num-batched-tokens ({self.max_num_batched_tokens}) must be at least --max-num-seqs "
                f"({self.max_num_seqs}): each running request needs one token a step"
            )
