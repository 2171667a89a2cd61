"""A Llama put together from loose operators, and transformers' own to hold it against: what module 2.1's checks compare."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from minillm.model.checkpoints import open_checkpoint
from minillm.model.ops import rope_cos_sin, rope_frequencies


@torch.inference_mode()
def logits_of(ops, model, ids: list[int]) -> Tensor:
    """Logits [T, vocab] of a whole Llama: four operators, attributes of `ops`, and the weights of a transformers model."""
    config, weights = model.config, {name.removeprefix("model."): w for name, w in model.state_dict().items()}
    dim, eps = config.head_dim, config.rms_norm_eps
    cos, sin = rope_cos_sin(torch.arange(len(ids)), rope_frequencies(dim, config.rope_parameters["rope_theta"]), torch.float32)
    x = weights["embed_tokens.weight"][ids]
    for i in range(config.num_hidden_layers):
        layer = {name.removeprefix(f"layers.{i}."): w for name, w in weights.items() if name.startswith(f"layers.{i}.")}
        h = ops.rms_norm(x, layer["input_layernorm.weight"], eps)
        q, k, v = (F.linear(h, layer[f"self_attn.{name}_proj.weight"]).unflatten(-1, (-1, dim)) for name in "qkv")
        out = ops.gqa_attention(ops.rope(q, cos, sin), ops.rope(k, cos, sin), v, dim**-0.5)
        x = x + F.linear(out.flatten(1), layer["self_attn.o_proj.weight"])
        h = ops.rms_norm(x, layer["post_attention_layernorm.weight"], eps)
        hidden = ops.swiglu(F.linear(h, layer["mlp.gate_proj.weight"]), F.linear(h, layer["mlp.up_proj.weight"]))
        x = x + F.linear(hidden, layer["mlp.down_proj.weight"])
    return F.linear(ops.rms_norm(x, weights["norm.weight"], eps), model.lm_head.weight)


@cache
def tiny():
    """Two layers, random weights, large eps, and heads that are not hidden_size / num_heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=1000, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        head_dim=10, rms_norm_eps=1e-2, initializer_range=0.3, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


@cache
def smollm2():
    """The real model in float32, from the cache on this machine."""
    from transformers import AutoModelForCausalLM

    folder = open_checkpoint("smollm2-135m", progress=False).folder
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()


@cache
def theirs(make, ids: tuple[int, ...]) -> Tensor:
    """Logits [T, vocab] by transformers, of the model that `make` makes; the oracle."""
    with torch.inference_mode():
        return make()(torch.tensor([ids])).logits[0]
