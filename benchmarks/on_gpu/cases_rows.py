"""Cases of kernels that pass over memory once: norms, rotations, gates, the cache's writes, softmax, sampling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from minillm.kernels.argmax import argmax, argmax_bytes, argmax_torch
from minillm.kernels.kv_write import kv_write, kv_write_bytes, kv_write_torch
from minillm.kernels.rms_norm import (
    add_rms_norm,
    add_rms_norm_bytes,
    add_rms_norm_torch,
    rms_norm,
    rms_norm_bytes,
    rms_norm_torch,
)
from minillm.kernels.rope import rope, rope_bytes, rope_torch
from minillm.kernels.sample import sample, sample_torch
from minillm.kernels.silu_mul import silu_mul, silu_mul_bytes, silu_mul_torch
from minillm.kernels.softmax import softmax, softmax_bytes, softmax_torch

from minillm.kv.storage import write_kv
from on_gpu.cases import Case, randn
from on_gpu.shapes import Shape

EPS = 1e-5


def cases(shape: Shape, tokens: int) -> list[Case]:
    s, t = shape, tokens

    def rows(dtype, device, count=1):
        weight = randn(s.hidden, dtype=dtype, device=device)
        return *(randn(t, s.hidden, dtype=dtype, device=device) for _ in range(count)), weight

    def fused_qkv(dtype, device):
        """q, k as the slices of a fused projection that they are in the engine; an angle's cosine and sine."""
        qkv = randn(t, s.heads + 2 * s.kv_heads, s.head_dim, dtype=dtype, device=device)
        angle = torch.rand(t, s.head_dim // 2, device=device) * 6.28
        return qkv[:, : s.heads], qkv[:, s.heads : s.heads + s.kv_heads], angle.cos().to(dtype), angle.sin().to(dtype)

    def query_heads(dtype, device):
        """q as a slice of a fused projection, and the weight of a head's norm, as Qwen3 has it."""
        return fused_qkv(dtype, device)[0], randn(s.head_dim, dtype=dtype, device=device)

    def new_keys(dtype, device):
        kv = randn(t, 2 * s.kv_heads, s.head_dim, dtype=dtype, device=device)
        blocks = -(-t // s.block_size)
        cache = torch.zeros(blocks + 1, 2, s.kv_heads, s.head_dim, s.block_size, dtype=dtype, device=device)
        order = torch.randperm(blocks, device=device).repeat_interleave(s.block_size)[:t]
        slots = order * s.block_size + torch.arange(t, device=device) % s.block_size
        return kv[:, : s.kv_heads], kv[:, s.kv_heads :], cache, slots

    def logits(dtype, device):
        return (randn(s.batch, s.vocab, dtype=dtype, device=device, scale=3.0),)

    def draws(dtype, device):
        i = torch.arange(s.batch, device=device)
        filters = (20 * (i % 2), torch.where(i % 3 == 1, 0.9, 1.0).double(), torch.where(i % 4 == 2, 0.01, 0.0))
        temperature = torch.full((s.batch,), 0.8, device=device)
        return *logits(dtype, device), temperature, i * 7919, i + 100, torch.zeros_like(i), *filters

    def plain_draws(dtype, device):
        return draws(dtype, device)[:4]

    def written(write):
        def run(k, v, cache, slots):
            write(k, v, cache, slots)
            return cache

        return run

    def torchs_add_norm(x, residual, weight):
        total = residual + x
        return F.rms_norm(total, weight.shape, weight, EPS), total

    def torchs_sample(x, temperature, *_):
        return torch.multinomial(torch.softmax(x.float() / temperature[:, None], -1), 1)

    drawn = {"rounding": None, "mismatches": 2 / 32}  # a draw in float32's last bits of a border between two tokens
    return [
        Case("rms_norm", rows, lambda x, w: rms_norm(x, w, EPS), lambda x, w: rms_norm_torch(x, w, EPS),
             lambda x, w: F.rms_norm(x, w.shape, w, EPS), lambda d: rms_norm_bytes(t, s.hidden, d)),
        Case("rms_norm_heads", query_heads, lambda x, w: rms_norm(x, w, EPS), lambda x, w: rms_norm_torch(x, w, EPS),
             lambda x, w: F.rms_norm(x, w.shape, w, EPS), lambda d: rms_norm_bytes(t * s.heads, s.head_dim, d)),
        Case("add_rms_norm", lambda d, at: rows(d, at, 2), lambda x, r, w: add_rms_norm(x, r, w, EPS),
             lambda x, r, w: add_rms_norm_torch(x, r, w, EPS), torchs_add_norm, lambda d: add_rms_norm_bytes(t, s.hidden, d)),
        Case("rope", fused_qkv, rope, rope_torch, rope_torch, lambda d: rope_bytes(t, s.heads, s.kv_heads, s.head_dim, d)),
        Case("silu_mul", lambda d, at: (randn(t, 2 * s.inner, dtype=d, device=at),), silu_mul, silu_mul_torch,
             lambda x: F.silu(x[:, : s.inner]) * x[:, s.inner :], lambda d: silu_mul_bytes(t, s.inner, d)),
        Case("kv_write", new_keys, written(kv_write), written(kv_write_torch),
             lambda k, v, cache, slots: write_kv(k, v, cache, slots),
             lambda d: kv_write_bytes(t, s.kv_heads, s.head_dim, d), rounding=None),
        Case("softmax", lambda d, at: (randn(t, s.hidden, dtype=d, device=at),), softmax, softmax_torch,
             lambda x: torch.softmax(x, -1), lambda d: softmax_bytes(t, s.hidden, d)),
        Case("softmax_long", logits, softmax, softmax_torch),  # rows of a vocabulary, which no program holds
        Case("argmax", logits, argmax, argmax_torch, argmax_torch, lambda d: argmax_bytes(s.batch, s.vocab, d), rounding=None),
        Case("sample", plain_draws, sample, sample_torch, torchs_sample, **drawn),
        Case("sample_filtered", draws, sample, sample_torch, **drawn),
    ]  # fmt: skip
