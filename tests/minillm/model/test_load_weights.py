"""Every parameter is filled exactly once, or the error names the tensor."""

import pytest
import torch

from minillm.errors import CheckpointError


@pytest.fixture
def weights(oracles):
    return dict(oracles["qwen2"].model.state_dict())


def load(oracles, pairs, name="qwen2", **options):
    decoder = oracles[name].decoder(**options)
    with torch.no_grad():
        for p in decoder.parameters():
            p.fill_(torch.nan)
    decoder.load_weights(pairs)
    return decoder


def test_every_parameter_is_filled_and_cast(oracle):
    decoder = oracle.decoder(dtype=torch.bfloat16)
    with torch.no_grad():
        for p in decoder.parameters():
            p.fill_(torch.nan)
    decoder.load_weights(oracle.model.state_dict().items())
    for name, p in decoder.named_parameters():
        assert p.dtype == torch.bfloat16 and not p.requires_grad and p.isfinite().all(), name
    assert sum(p.numel() for p in decoder.parameters()) == sum(p.numel() for p in oracle.model.parameters())


def test_the_order_of_tensors_does_not_matter(oracles, weights):
    forward, backward = load(oracles, weights.items()), load(oracles, reversed(weights.items()))
    for a, b in zip(forward.parameters(), backward.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("missing", ["model.layers.1.self_attn.k_proj.bias", "model.norm.weight", "lm_head.weight"])
def test_a_missing_tensor_is_named(oracles, weights, missing):
    del weights[missing]
    with pytest.raises(CheckpointError, match=f"lacks {missing};"):
        load(oracles, weights.items())


def test_many_missing_tensors_are_counted(oracles):
    with pytest.raises(CheckpointError, match=r"lacks model.embed_tokens.weight and \d+ more"):
        load(oracles, [])


@pytest.mark.parametrize(
    "unknown", ["model.layers.3.mlp.up_proj.weight", "model.layers.0.self_attn.q_norm.weight", "score.weight"]
)
def test_an_unknown_tensor_is_named(oracles, weights, unknown):
    with pytest.raises(CheckpointError, match=f"holds {unknown} which this architecture does not have"):
        load(oracles, [(unknown, torch.ones(48)), *weights.items()])


def test_a_repeated_tensor_is_named(oracles, weights):
    repeated = "model.layers.0.mlp.gate_proj.weight"
    with pytest.raises(CheckpointError, match=f"holds {repeated} twice"):
        load(oracles, [*weights.items(), (repeated, weights[repeated])])


@pytest.mark.parametrize("shape", [(16, 47), (15, 48), (48, 16), (1, 48), (1,)])
def test_a_wrong_shape_is_named(oracles, weights, shape):
    """(1, 48) and (1,) could be broadcast: a copy alone would not notice."""
    weights["model.layers.0.self_attn.k_proj.weight"] = torch.ones(shape)
    with pytest.raises(CheckpointError, match=r"k_proj.weight has shape .* where config.json implies \[16, 48\]"):
        load(oracles, weights.items())


def test_tied_embeddings_share_storage_and_need_no_head(oracles):
    weights = dict(oracles["llama-tied"].model.state_dict())
    embedding = weights["model.embed_tokens.weight"]
    stored_head = [("lm_head.weight", torch.zeros_like(embedding))]  # some files repeat it; the embedding decides
    without = [(name, tensor) for name, tensor in weights.items() if name != "lm_head.weight"]
    for pairs in (without, stored_head + without):
        decoder = load(oracles, pairs, "llama-tied")
        assert decoder.lm_head.weight.data_ptr() == decoder.embed_tokens.weight.data_ptr()
        assert torch.equal(decoder.lm_head.weight, embedding)


def test_stored_rotary_frequencies_are_left_out(oracles, weights):
    load(oracles, [("model.layers.0.self_attn.rotary_emb.inv_freq", torch.ones(4)), *weights.items()])


def test_one_tensor_at_a_time(oracles, weights):
    """The next tensor is asked for only when the one before has been copied, so that the reader may free it."""
    seen = []

    def stream():
        for name, tensor in weights.items():
            lent = tensor.clone()
            yield name, lent
            lent.fill_(torch.nan)
            seen.append(name)

    decoder = load(oracles, stream())
    assert seen == list(weights)
    assert all(p.isfinite().all() for p in decoder.parameters())
