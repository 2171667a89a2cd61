"""Prompts through compiled code: a layer in two halves, with attention between them.

Prompts come in any length, alone or several in a step, with or without a cached past; attention knows how to deal with that,
and the rest of a layer only sees tokens. So attention stays the backend's, and what surrounds it is compiled, once for all
layers and all lengths: the weights are arguments. For many tokens the matrix library reads them as fast in the order in which
they were loaded as in any other, so the compiled code uses the decoder's own memory. What it saves is everything else:
normalisation, rotation, gating and the sums are one pass each over memory in place of many.

A quantized model's matrices are written out in the model's dtype when the graphs are loaded, two bytes a weight in bfloat16:
converting them in each step costs more than reading them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from minillm.attention.base import AttentionMetadata
from minillm.model.decoder import Decoder, DecoderLayer
from minillm.model.linear import Linear, Unquantized
from minillm.model.ops import rope_cos_sin

HALVES = ("before", "after")
_PARTS_BEFORE = ("input_norm", "qkv_proj", "q_norm", "k_norm")
Half = Callable[..., tuple[Tensor, ...] | Tensor]


class LayerHalf(nn.Module):
    """DecoderLayer.before_attention or after_attention, with the layer's parameters as the first argument."""

    def __init__(self, decoder: Decoder, half: str):
        super().__init__()
        layer = DecoderLayer(decoder.config, Unquantized(), {"dtype": decoder.dtype, "device": "meta"}).requires_grad_(False)
        run = (_Before if half == "before" else _After)(layer)
        names = [f"layer.{name}" for name in parameters_of(layer, half)]
        # not a submodule: its parameters are places for arguments, and an exporter must not make constants of them
        self._call = lambda parameters, inputs: functional_call(run, dict(zip(names, parameters, strict=True)), inputs)

    def forward(self, parameters: list[Tensor], *inputs: Tensor) -> tuple[Tensor, ...] | Tensor:
        """inputs, T tokens: before: x, cos, sin, to q, k, v; after: x, attention's result, to x. See DecoderLayer."""
        return self._call(parameters, inputs)


class _Before(nn.Module):
    def __init__(self, layer: DecoderLayer):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.layer.before_attention(x, cos, sin)


class _After(nn.Module):
    def __init__(self, layer: DecoderLayer):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, attended: Tensor) -> Tensor:
        return self.layer.after_attention(x, attended)


class Prefill:
    """Decoder.forward for T >= 2 tokens, with both halves of each layer compiled."""

    def __init__(self, decoder: Decoder, before: Half, after: Half):
        self.decoder, self.before, self.after = decoder, before, after
        self.parameters = [[list(parameters_of(layer, half).values()) for half in HALVES] for layer in decoder.layers]

    def __call__(self, token_ids: Tensor, positions: Tensor, kv_cache: list[Tensor], meta: AttentionMetadata) -> Tensor:
        decoder, config = self.decoder, self.decoder.config
        x = decoder.embed_tokens(token_ids)
        cos, sin = rope_cos_sin(positions, decoder.inv_freq, x.dtype)
        attend = decoder.attention.plan(meta, config.head_dim**-0.5, config.sliding_window)
        for (for_before, for_after), cache in zip(self.parameters, kv_cache, strict=True):
            attended = attend(*self.before(for_before, x, cos, sin), cache)
            x = self.after(for_after, x, attended.contiguous())  # compiled code takes the order in memory for granted
        return decoder.norm(x)


def example_inputs(decoder: Decoder, half: str, tokens: int = 16) -> tuple[list[Tensor], ...]:
    """What the compiler is shown of LayerHalf's arguments."""
    config, new = decoder.config, {"dtype": decoder.dtype}
    x, angles = torch.zeros(tokens, config.hidden_size, **new), torch.ones(tokens, config.head_dim // 2, **new)
    attended = torch.zeros(tokens, config.num_heads, config.head_dim, **new)
    inputs = (x, angles, angles.clone()) if half == "before" else (x, attended)
    return list(parameters_of(decoder.layers[0], half).values()), *inputs


def parameters_of(layer: DecoderLayer, half: str) -> dict[str, Tensor]:
    """What one half of a layer reads, by name, quantized matrices written out."""
    belongs = {name: (name.split(".")[0] in _PARTS_BEFORE) == (half == "before") for name, _ in layer.named_modules() if name}
    return plain_parameters(layer, lambda name: belongs[name])


def plain_parameters(module: nn.Module, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Tensor]:
    """The parameters of a model or a part of it as if nothing were quantized: its matrices in the model's dtype, all else as
    it is, nothing copied that need not be. wanted: of which submodules, by name."""
    found: dict[str, Tensor] = {}
    for name, part in module.named_modules():
        if name and wanted(name):
            own = dict(part.named_parameters(recurse=False))
            if isinstance(part, Linear):
                own = {"weight": part.method.dense(part)} | ({} if part.bias is None else {"bias": part.bias})
            found |= {f"{name}.{n}": p for n, p in own.items()}
    return found
