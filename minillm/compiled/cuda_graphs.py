"""Decode steps on a GPU as CUDA graphs: hundreds of kernel launches replayed as one.

A graph replays the same kernels on the same addresses. So inputs live in buffers that are filled before each replay, and a
shape that changes needs a graph of its own: one for each batch size and, with torch's attention, which reads whole block tables,
for each width of the table; both in powers of two.

Written from the CUDA graphs interface of torch and **not run on a GPU yet**: what is around it is tested on a CPU, with the
capture replaced by a plain call.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from minillm.compiled.dispatch import Bucket, CompiledDecoder, default_buckets
from minillm.compiled.graph import DecodeGraph, HeadGraph
from minillm.config import EngineConfig
from minillm.fused.decoder import FusedDecoder
from minillm.model.decoder import Decoder

log = logging.getLogger("minillm")

LONGEST = 2048  # tokens: the graph's attention writes its products to memory, and longer contexts are better off eager
Model = Decoder | FusedDecoder
Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]


@dataclass(frozen=True)
class _Recorded:
    token_ids: Tensor  # [B] int64
    positions: Tensor  # [B] int64
    block_tables: Tensor  # [B, W] int64
    output: Tensor
    replay: Callable[[], None]


class Recorder:
    """Captures on the current device, all graphs in one pool of memory: they never run at the same time."""

    def __init__(self):
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Capture `run`, whose tensors must stay where they are. Returns what replays it, and the tensor that then holds its
        result, until another graph is replayed.

        It runs first on a side stream: libraries allocate workspaces at their first call, which a capture must not contain.
        """
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            output = run()
        return graph.replay, output


def captured(
    config: EngineConfig, decoder: Model, kv_cache: list[Tensor], max_model_len: int, capture: Capture | None = None
) -> Model | CompiledDecoder:
    """The decoder with its decode steps as CUDA graphs; as it is where they are not wanted or the capture fails. The log says
    which. kv_cache: as capture_buckets'. capture: None: a new Recorder."""
    fused = isinstance(decoder, FusedDecoder)
    own = "triton" if fused else "sdpa"  # what its graph computes, whatever was asked for
    if config.enforce_eager or config.kv != "paged" or config.attention not in ("auto", own):
        return decoder
    # torch's attention writes its products to memory, too much of it for large batches
    sizes, started = (batch_sizes if fused else default_buckets)(config.max_num_seqs), time.perf_counter()
    try:
        buckets = capture_buckets(decoder, kv_cache, sizes, max_model_len, capture or Recorder())
    except RuntimeError as e:  # what torch raises for a failed capture, and for memory that ran out in one
        cause = next(iter(str(e).splitlines()), "") or type(e).__name__
        log.warning("running eager: capturing decode steps as CUDA graphs failed (%s); --enforce-eager skips the attempt", cause)
        return decoder
    numbers = ", ".join(map(str, sizes))
    log.info("captured decode steps as CUDA graphs for batch sizes %s in %.1f s", numbers, time.perf_counter() - started)
    return CompiledDecoder(decoder, buckets)


def batch_sizes(max_num_seqs: int) -> list[int]:
    """default_buckets, then powers of two and max_num_seqs itself: a GPU computes so many decodes in the time of one, and cut
    into pieces they would read the weights once for each."""
    return sorted({*default_buckets(max_num_seqs), *(1 << i for i in range(6, max_num_seqs.bit_length())), max_num_seqs})


@torch.inference_mode()
def capture_buckets(
    decoder: Model, kv_cache: list[Tensor], sizes: list[int], max_model_len: int, capture: Capture
) -> dict[int, Bucket]:
    """For CompiledDecoder: graphs for each batch size. Our kernels read as many blocks of a table as are in use, and one graph
    serves all lengths; torch's read all, and there is one for block tables of 2, 4, 8, … blocks, up to max_model_len or LONGEST.

    kv_cache must be the one that steps will be called with: its addresses are in the graphs.
    """
    if isinstance(decoder, FusedDecoder):
        from minillm.fused.graph import FusedDecodeGraph  # loads Triton

        step, widths = FusedDecodeGraph(decoder, max_model_len), [max(2, -(-max_model_len // kv_cache[0].shape[-1]))]
    else:
        step, widths = DecodeGraph(decoder), _widths(-(-min(max_model_len, LONGEST) // kv_cache[0].shape[-1]))
    # largest first, so that smaller graphs find room in the memory that larger ones gave back
    return {size: _capture_bucket(decoder, step, kv_cache, size, widths, capture) for size in sorted(sizes, reverse=True)}


def _widths(largest: int) -> list[int]:
    widths = [2]
    while widths[-1] < largest:
        widths.append(widths[-1] * 2)
    return widths


def _capture_bucket(
    decoder: Model, decode_graph: Callable, kv_cache: list[Tensor], size: int, widths: list[int], capture: Capture
) -> Bucket:
    nobodys_block = len(kv_cache[0]) - 1
    head_graph = HeadGraph(decoder)
    new = {"dtype": torch.int64, "device": decoder.device}
    recorded: dict[int, _Recorded] = {}
    for width in reversed(widths):
        token_ids, positions = torch.zeros(size, **new), torch.zeros(size, **new)
        tables = torch.full((size, width), nobodys_block, **new)
        replay, output = capture(lambda t=token_ids, p=positions, b=tables: decode_graph(t, p, b, kv_cache))
        recorded[width] = _Recorded(token_ids, positions, tables, output, replay)
    hidden = torch.zeros(size, decoder.config.hidden_size, dtype=decoder.dtype, device=decoder.device)
    replay_head, logits = capture(lambda: head_graph(hidden))

    def decode(token_ids: Tensor, positions: Tensor, block_tables: Tensor, _: list[Tensor]) -> Tensor:
        needed = block_tables.shape[1]
        graph = recorded[next(width for width in widths if width >= needed)]
        graph.token_ids.copy_(token_ids)
        graph.positions.copy_(positions)
        missing = graph.block_tables.shape[1] - needed
        graph.block_tables.copy_(F.pad(block_tables, (0, missing), value=nobodys_block))
        graph.replay()
        return graph.output.clone()  # the next replay overwrites it

    def head(rows: Tensor) -> Tensor:
        hidden.copy_(rows)
        replay_head()
        return logits.clone()

    return Bucket(decode, head, max_width=widths[-1])
