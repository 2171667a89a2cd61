import pytest

from shared import budget, models
from shared.caches import kv_bytes, kv_bytes_per_token, state_bytes
from shared.layers import Heads, Latent, State, layers_of

GEMMA = layers_of(models.load("gemma-3-4b"))
# Qwen3-Next-80B-A3B, as transformers' Qwen3NextConfig() has it: one layer in four keeps keys and values.
DELTA = State(num_heads=32, key_dim=128, value_dim=128, conv_channels=2 * 16 * 128 + 32 * 128, conv_kernel=4)
HYBRID = [*[DELTA] * 36, *[Heads(2, 256)] * 12]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("smollm2-135m", 23_040),
        ("smollm2-1.7b", 196_608),
        ("llama-3.1-8b", 131_072),
        ("llama-2-7b", 524_288),
        ("qwen3-0.6b", 114_688),
        ("qwen3-30b-a3b", 98_304),
        ("deepseek-v3", 70_272),
        ("kimi-k2", 70_272),
    ],
)
def test_known_models(name, expected):
    assert kv_bytes_per_token(layers_of(models.load(name))) == expected


def test_windows_fill_and_then_stand_still():
    assert [kv_bytes_per_token(GEMMA, context) for context in (0, 1023, 1024, 10**6)] == [139_264, 139_264, 20_480, 20_480]
    assert kv_bytes(GEMMA, 1024) == 139_264 * 1024
    assert kv_bytes(GEMMA, 1500) == 139_264 * 1024 + 20_480 * 476


@pytest.mark.parametrize("layers", [GEMMA, HYBRID, [Latent(5, 2), Heads(1, 3, 7), DELTA]])
def test_tokens_add_up(layers):
    for tokens in (0, 1, 6, 7, 8, 20):
        assert sum(kv_bytes_per_token(layers, context, 0.5) for context in range(tokens)) == kv_bytes(layers, tokens, 0.5)


def test_a_state_has_a_size_and_does_not_grow():
    assert kv_bytes_per_token(HYBRID, 12345) == kv_bytes_per_token(HYBRID) == 24_576
    assert state_bytes(HYBRID) == 2 * 36 * (32 * 128 * 128 + 8192 * 3) == 39_518_208
    assert state_bytes([State(2, 3, 5)], 4) == 120
    assert state_bytes(GEMMA) == 0
    assert kv_bytes([DELTA], 10**6) == 0


def test_budget_counts_with_these():
    for name in models.names():
        model = models.load(name, allow_unverified=True)
        layers = layers_of(model)
        assert len(layers) == model.num_layers
        for tokens in (0, 100, 5000):
            assert budget.kv_bytes(model, tokens, 1) == kv_bytes(layers, tokens, 1)
            assert budget.next_token_kv_bytes(model, tokens, 1) == kv_bytes_per_token(layers, tokens, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: kv_bytes_per_token([]),
        lambda: kv_bytes_per_token(GEMMA, -1),
        lambda: kv_bytes_per_token(GEMMA, 0, 0),
        lambda: kv_bytes([], 1),
        lambda: kv_bytes(GEMMA, -1),
        lambda: kv_bytes(GEMMA, 1, -2),
        lambda: state_bytes([]),
        lambda: state_bytes(HYBRID, 0),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match=r"must be above zero|must not be negative"):
        call()
