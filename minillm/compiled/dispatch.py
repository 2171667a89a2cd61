"""Decode steps through compiled graphs, prompts through compiled layers, what is not compiled through the decoder itself."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from minillm.attention.base import AttentionMetadata
from minillm.compiled.key import graphs_folder
from minillm.compiled.prefill import HALVES, Prefill
from minillm.config import EngineConfig
from minillm.model.checkpoints.cache import read_manifest
from minillm.model.decoder import Decoder

log = logging.getLogger("minillm")

BUCKETS = (1, 4, 8, 16, 32)


def default_buckets(max_num_seqs: int) -> list[int]:
    """BUCKETS below max_num_seqs, and max_num_seqs itself unless it is larger than all of them."""
    return sorted({min(b, max_num_seqs) for b in BUCKETS})


@dataclass(frozen=True)
class Bucket:
    """The graphs of one batch size; see DecodeGraph and HeadGraph for what they take and return."""

    decode: Callable[[Tensor, Tensor, Tensor, list[Tensor]], Tensor]
    head: Callable[[Tensor], Tensor]
    max_width: int | None = None  # widest block table that decode takes


class CompiledDecoder:
    """A Decoder to whoever calls it. Decodes run in the smallest bucket that holds them, padded; more than the largest
    bucket holds run in several calls. Prompts run through `prefill`, which takes what Decoder.forward takes."""

    def __init__(self, decoder: Decoder, buckets: Mapping[int, Bucket], prefill: Callable[..., Tensor] | None = None):
        """prefill: None: the decoder itself."""
        self.decoder, self.buckets, self.prefill = decoder, dict(sorted(buckets.items())), prefill or decoder
        self.config, self.dtype, self.device = decoder.config, decoder.dtype, decoder.device
        self._largest = max(self.buckets)
        self._max_width = self.buckets[self._largest].max_width

    def __call__(self, token_ids: Tensor, positions: Tensor, kv_cache: list[Tensor], meta: AttentionMetadata) -> Tensor:
        """As Decoder.forward."""
        if self._max_width is not None and _width(meta) > self._max_width:
            return self.decoder(token_ids, positions, kv_cache, meta)
        first, prompts, decodes = meta.num_decodes, [], []
        # Prompts before decodes: a request admitted in this step may share blocks that a prompt of this step is only now
        # filling, and have a single token of its own left to compute. (See Scheduler: the reverse cannot happen.)
        if first < len(token_ids):
            prompts = [self.prefill(token_ids[first:], positions[first:], kv_cache, without_decodes(meta))]
        for start in range(0, first, self._largest):
            rows = slice(start, min(start + self._largest, first))
            decodes.append(self._decode(token_ids[rows], positions[rows], kv_cache, meta, rows))
        parts = decodes + prompts
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def logits(self, hidden: Tensor) -> Tensor:
        """As Decoder.logits."""
        parts = []
        for rows in hidden.split(self._largest):
            size = self._bucket_for(len(rows))
            parts.append(self.buckets[size].head(F.pad(rows, (0, 0, 0, size - len(rows))))[: len(rows)])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def parameters(self):
        return self.decoder.parameters()

    def _bucket_for(self, rows: int) -> int:
        return next(size for size in self.buckets if size >= rows)

    def _decode(
        self, token_ids: Tensor, positions: Tensor, kv_cache: list[Tensor], meta: AttentionMetadata, rows: slice
    ) -> Tensor:
        count, nobodys_block = len(token_ids), len(kv_cache[0]) - 1
        size = self._bucket_for(count)
        needed = -(-max(meta.seq_lens[rows]) // meta.block_size)
        tables = meta.block_tables[rows, :needed]
        # a padding row is a sequence of one token in the block that belongs to nobody; graphs take at least two columns
        tables = F.pad(tables, (0, max(0, 2 - needed), 0, size - count), value=nobodys_block)
        pad = (0, size - count)
        return self.buckets[size].decode(F.pad(token_ids, pad), F.pad(positions, pad), tables, kv_cache)[:count]


def _width(meta: AttentionMetadata) -> int:
    """Blocks that the longest decode reads."""
    return -(-max(meta.seq_lens[: meta.num_decodes], default=0) // meta.block_size)


def without_decodes(meta: AttentionMetadata) -> AttentionMetadata:
    """The part of a step that decodes do not belong to."""
    n = meta.num_decodes
    return replace(
        meta,
        query_start_loc=[start - n for start in meta.query_start_loc[n:]],
        seq_lens=meta.seq_lens[n:],
        block_tables=meta.block_tables[n:],
        slot_mapping=meta.slot_mapping[n:],
        num_decodes=0,
    )


def find(config: EngineConfig, decoder: Decoder) -> Decoder | CompiledDecoder:
    """The decoder with whatever has been compiled for it, or as it is; one line in the log says which. Never compiles."""
    # graphs bring their own attention; another backend than the default was asked for to be used
    if config.enforce_eager or config.kv != "paged" or config.attention not in ("auto", "sdpa") or decoder.device.type != "cpu":
        return decoder
    folder = graphs_folder(config, decoder)
    found = sorted(int(p.name.removeprefix("batch-")) for p in folder.glob("batch-*") if read_manifest(p))
    if not found:
        _say_how_to_get_it()
        return decoder
    largest_needed = next((b for b in found if b >= config.max_num_seqs), found[-1])
    wanted = [b for b in found if b <= largest_needed]
    buckets = {b: Bucket(*_load(folder / f"batch-{b}", ("decode", "head"))) for b in wanted}
    prefill = None
    if read_manifest(folder / "prefill"):
        prefill = Prefill(decoder, *_load(folder / "prefill", HALVES))
    log.info("compiled decode for batch sizes %s; prompts %s", ", ".join(map(str, wanted)), "compiled" if prefill else "eager")
    return CompiledDecoder(decoder, buckets, prefill)


def _load(folder: Path, names: Sequence[str]) -> list[Callable]:
    return [torch._inductor.aoti_load_package(str(folder / f"{name}.pt2")) for name in names]


def _say_how_to_get_it() -> None:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        log.warning(
            "running eager, at half the speed or less: compiling the decode step needs a C++ compiler, and there is none here"
        )
    else:
        log.info("running eager: nothing is compiled for this model and these settings yet; `minillm compile` does it, once")
