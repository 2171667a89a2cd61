"""How many blocks a cache gets. The tiny model's keys and values take 256 bytes a token in float32."""

import pytest
import torch

from minillm.config import EngineConfig, ModelConfig
from minillm.errors import ConfigError
from minillm.kv import sizing
from minillm.kv.sizing import CPU_LIMIT_BYTES, size_cache

MODEL = ModelConfig("llama", 300, 32, 64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, max_position_embeddings=4096)
CPU, GPU = torch.device("cpu"), torch.device("cuda")
PER_TOKEN = 256
GB = 10**9


def size(device=CPU, max_model_len=128, activations=0, **options):
    return size_cache(EngineConfig(**options), MODEL, torch.float32, max_model_len, device, lambda: activations)


def test_never_more_than_all_running_requests_can_fill():
    got = size(max_num_seqs=3, block_size=16, kv_cache_memory_bytes=GB)
    assert (got.num_blocks, got.block_size, got.bytes) == (3 * 8, 16, 3 * 128 * PER_TOKEN)
    assert got.why == "all 3 requests at full length"
    assert size(max_num_seqs=3, max_model_len=129, kv_cache_memory_bytes=GB).num_blocks == 3 * 9, "a partial block is a block"


def test_what_is_asked_for_in_bytes_is_not_exceeded():
    got = size(kv_cache_memory_bytes=10 * 16 * PER_TOKEN + 1000)
    assert (got.num_blocks, got.bytes, got.why) == (10, 10 * 16 * PER_TOKEN, "--kv-cache-memory-bytes")


def test_a_contiguous_cache_has_rows_of_the_longest_request():
    got = size(kv="contiguous", kv_cache_memory_bytes=2 * 128 * PER_TOKEN + 1000)
    assert (got.num_blocks, got.block_size) == (2, 128)


def test_half_precision_doubles_the_tokens():
    config = EngineConfig(kv_cache_memory_bytes=16 * 16 * PER_TOKEN)
    blocks = [size_cache(config, MODEL, dtype, 128, CPU, lambda: 0).num_blocks for dtype in (torch.float32, torch.bfloat16)]
    assert blocks == [16, 32]


@pytest.mark.parametrize("kv, block_size, most", [("paged", 16, 96), ("paged", 1, 100), ("contiguous", 16, 100)])
def test_a_request_that_can_never_fit_is_refused_and_what_would_fit_fits(kv, block_size, most):
    options = {"kv": kv, "block_size": block_size, "kv_cache_memory_bytes": 100 * PER_TOKEN + 100}
    with pytest.raises(ConfigError, match=rf"128 tokens .* set --max-model-len to {most} or less"):
        size(**options)
    got = size(max_model_len=most, **options)
    assert got.num_blocks * got.block_size >= most
    with pytest.raises(ConfigError):
        size(max_model_len=most + 1, **options)


@pytest.fixture
def cpu_memory(monkeypatch):
    """cpu_memory(available, total, used): bytes that the machine, its limit and this process have."""

    def give(available, total, used):
        monkeypatch.setattr(sizing.psutil, "virtual_memory", lambda: type("M", (), {"available": available}))
        monkeypatch.setattr(sizing, "memory_bytes", lambda: total)
        info = type("P", (), {"memory_info": lambda self: type("I", (), {"rss": used})})
        monkeypatch.setattr(sizing.psutil, "Process", info)

    return give


@pytest.mark.parametrize("available, total, used, budget", [
    (GB, 64 * GB, GB, GB // 2),  # half of what the machine has free
    (64 * GB, 2 * GB, GB, GB // 2),  # a container's limit, less what this process holds of it
    (64 * GB, 64 * GB, GB, CPU_LIMIT_BYTES),  # and no more than the limit, unless asked for
])  # fmt: skip
def test_a_cpu_gives_half_of_what_is_free(cpu_memory, available, total, used, budget):
    cpu_memory(available, total, used)
    got = size(max_model_len=4096, max_num_seqs=8192, max_num_batched_tokens=8192)
    assert got.num_blocks == budget // (16 * PER_TOKEN)
    assert ("--kv-cache-memory-bytes" if budget == CPU_LIMIT_BYTES else "half of the 1.00 GB") in got.why


def test_a_full_machine_is_an_error_with_a_way_out(cpu_memory):
    cpu_memory(GB, GB, 2 * GB)
    with pytest.raises(ConfigError, match="free some memory"):
        size()


def test_a_gpu_gives_its_share_less_what_is_in_use_and_the_largest_step(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 * 10**6, 100 * 10**6))
    got = size(GPU, max_model_len=4096, activations=20 * 10**6, gpu_memory_utilization=0.9, max_num_seqs=2048)
    assert got.num_blocks == (90 - 30 - 20) * 10**6 // (16 * PER_TOKEN)
    assert "90%" in got.why and "0.03 GB in use" in got.why and "0.02 GB for the largest step" in got.why
    with pytest.raises(ConfigError, match="free some memory"):
        size(GPU, activations=90 * 10**6)


def test_bytes_that_are_asked_for_need_no_measurement():
    def never():
        raise AssertionError("the largest step was run for nothing")

    config = EngineConfig(kv_cache_memory_bytes=GB)
    assert size_cache(config, MODEL, torch.float32, 128, GPU, never).num_blocks == 32 * 8
