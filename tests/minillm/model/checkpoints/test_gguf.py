"""GGUF files: converted exactly, or refused by name."""

import json

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Tokenizer

from minillm.errors import CheckpointError
from minillm.model.checkpoints import open_checkpoint, pull
from minillm.model.checkpoints.gguf_config import llama3_factors

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_weights_and_config_come_back(make_gguf, arch, tied):
    path, state = make_gguf(arch=arch, tied=tied)
    checkpoint = open_checkpoint(str(path), progress=False)
    config = checkpoint.config
    assert (checkpoint.name, config.model_type, config.tie_word_embeddings) == ("tiny", arch, tied)
    assert (config.rms_norm_eps, config.rope_theta, config.max_position_embeddings) == (3e-6, 12345.0, 128)
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (2, 4, 2, 32 if arch == "qwen3" else 16)
    loaded = dict(checkpoint.weights())
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[n], state[n]) for n in state)


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_transformers_reads_the_same_weights_from_the_file(make_gguf, arch):
    path, _ = make_gguf(arch=arch, tied=False)
    checkpoint = open_checkpoint(str(path), progress=False)
    ours = dict(checkpoint.weights())
    config = AutoConfig.from_pretrained(checkpoint.folder)  # its own reading of a GGUF misses head_dim
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, config=config, dtype=torch.float32)
    theirs = model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.mark.parametrize(("kind", "dtype"), [("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16"), ("Q8_0", "bfloat16")])
def test_plain_files_keep_their_precision_and_others_become_bf16(make_gguf, kind, dtype):
    path, state = make_gguf(kind=kind)
    checkpoint = open_checkpoint(str(path), progress=False)
    assert checkpoint.config.torch_dtype == dtype
    loaded = dict(checkpoint.weights())
    assert {str(t.dtype) for t in loaded.values()} == {f"torch.{dtype}"}
    name, quant = "model.layers.1.mlp.down_proj.weight", GGMLQuantizationType[kind]
    expected = state[name].numpy() if kind == "F32" else dequantize(quantize(state[name].numpy(), quant), quant)
    assert torch.equal(loaded[name], torch.from_numpy(np.array(expected)).to(loaded[name].dtype))


def test_metadata_file_tells_the_source(make_gguf):
    path, _ = make_gguf(kind="Q4_1")
    about = json.loads((pull(str(path), progress=False) / "minillm.json").read_text())
    assert about["source"] == about["gguf_path"] == str(path)
    assert about["stored_as"] == {"Q4_1": 15, "F32": 5} and about["dtype"] == "bfloat16"
    assert "dequantized" in about["note"]


def test_a_changed_file_is_converted_again(make_gguf):
    path, _ = make_gguf()
    first = pull(str(path), progress=False)
    assert pull(str(path), progress=False) == first
    make_gguf(extra={"llama.attention.layer_norm_rms_epsilon": 1e-3})
    assert pull(str(path), progress=False) != first
    assert open_checkpoint(str(path), progress=False).config.rms_norm_eps == 1e-3


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_recovered(make_gguf, factor):
    factors = llama3_factors(16, 12345.0, {"factor": factor, **LLAMA3}).numpy()
    path, _ = make_gguf(change={"rope_freqs.weight": factors})
    scaling = open_checkpoint(str(path), progress=False).config.rope_scaling
    assert (scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor) == (factor, 1.0, 4.0)


def test_llama3_factors_are_transformers():
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, **LLAMA3}
    config = LlamaConfig(hidden_size=256, num_attention_heads=2, rope_parameters=rope, max_position_embeddings=131072)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 500000.0 ** (-torch.arange(0, 128, 2) / 128)
    assert torch.allclose(plain / scaled, llama3_factors(128, 500000.0, rope), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"change": {"rope_freqs.weight": np.linspace(1, 3, 8, dtype=np.float32)}}, "rope_freqs.weight is not Llama 3's scaling"),
        ({"extra": {"llama.expert_count": 8}}, "a mixture of experts is not supported"),
        ({"extra": {"llama.attention.sliding_window": 64}}, "sliding-window attention is not supported"),
        ({"extra": {"llama.rope.scaling.type": "yarn"}}, "RoPE scaling 'yarn' is not supported"),
        ({"extra": {"llama.rope.dimension_count": 8}}, "RoPE over a part of each head"),
        ({"extra": {"llama.attention.head_count_kv": [2, 1]}}, "number of heads that differs by layer"),
        ({"extra": {"split.count": 2}}, "is one part of several; merge them first"),
        ({"extra": {"general.architecture": "mamba"}, "arch": "llama"}, "GGUF architecture 'mamba' is not supported"),
        ({"drop": ("llama.embedding_length",)}, "metadata 'llama.embedding_length' is missing"),
        ({"drop": ("blk.1.ffn_up.weight",)}, r"tensor model\.layers\.1\.mlp\.up_proj\.weight is missing"),
        ({"change": {"blk.0.attn_sinks.weight": np.ones(4, np.float32)}}, r"blk\.0\.attn_sinks\.weight has no place in llama"),
        ({"pre": "tekken"}, "pre-tokenizer 'tekken' cannot be rebuilt .*safetensors checkpoint"),
        ({"pre": "default"}, "pre-tokenizer 'default' cannot be rebuilt"),
        ({"extra": {"tokenizer.ggml.model": "llama"}}, "tokenizer 'llama' with pre-tokenizer 'smollm' cannot be rebuilt"),
        ({"extra": {"tokenizer.ggml.merges": ["zz yy"]}}, "its vocabulary and merges do not fit together"),
        ({"extra": {"tokenizer.ggml.token_type": [1, 1]}}, "its vocabulary and merges do not fit together"),
        ({"extra": {"tokenizer.ggml.bos_token_id": 300, "tokenizer.ggml.add_bos_token": True}}, "300 is outside its 300 tokens"),
        ({"extra": {"tokenizer.ggml.padding_token_id": 300}}, "padding_token_id 300 is outside its 300 tokens"),
        ({"change": {"blk.0.ffn_up.bias": np.ones(4, np.int32)}}, r"ffn_up|up_proj\.bias has no place"),
    ],
)
def test_refused_and_nothing_cached(make_gguf, home, options, message):
    if options.get("extra", {}).get("general.architecture"):
        path, _ = make_gguf()
        path.write_bytes(path.read_bytes().replace(b"llama", b"mamba"))
    else:
        path, _ = make_gguf(**options)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(str(path), progress=False)
    assert not [p for p in home.rglob("*") if p.is_file() and p.suffix != ".lock"]


@pytest.mark.parametrize("keep", [0, 3, 30, 500, 0.3, 0.9, -1])
def test_truncated(make_gguf, keep):
    path, _ = make_gguf()
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(CheckpointError, match=r"tiny\.gguf is not a whole GGUF file .*fetch it again"):
        open_checkpoint(str(path), progress=False)


def test_not_a_gguf(tmp_path):
    (tmp_path / "x.gguf").write_text("hello, this is text" * 10)
    with pytest.raises(CheckpointError, match="is not a whole GGUF file"):
        open_checkpoint(str(tmp_path / "x.gguf"))
    with pytest.raises(CheckpointError, match=r"there is no file .*y.gguf; check the path"):
        open_checkpoint(str(tmp_path / "y.gguf"))


def tokenizer_of(path):
    return Tokenizer.from_file(str(pull(str(path), progress=False) / "tokenizer.json"))


def test_tokenizer_merges_and_special_tokens(make_gguf):
    tokenizer = tokenizer_of(make_gguf()[0])
    encoded = tokenizer.encode("x the<|end|><tool>[PAD299]")
    assert encoded.tokens == ["x", "Ġthe", "<|end|>", "<tool>", *"[PAD299]"]  # padding entries never come from text
    assert tokenizer.decode(encoded.ids, skip_special_tokens=True) == "x the<tool>[PAD299]"
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == "x the<|end|><tool>[PAD299]"


@pytest.mark.parametrize(
    ("pre", "extra", "adds"),
    [
        ("smollm", {}, False),
        ("llama-bpe", {}, True),
        ("llama-bpe", {"tokenizer.ggml.add_bos_token": False}, False),
        ("qwen2", {"tokenizer.ggml.add_bos_token": True}, True),
    ],
)
def test_beginning_of_sequence_as_the_file_wants(make_gguf, pre, extra, adds):
    tokenizer = tokenizer_of(make_gguf(pre=pre, extra=extra)[0])
    assert (tokenizer.encode("x").tokens == ["<|start|>", "x"]) == adds
    assert tokenizer.encode("x", add_special_tokens=False).tokens == ["x"]


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["I", "'ll", "Ġpay", "Ġ12345", "Ġ", "Ġnow", "!!", "Ċ"]),
        ("smollm", ["I", "'ll", "Ġpay", "Ġ", "1", "2", "3", "4", "5", "Ġ", "Ġnow", "!!", "Ċ"]),
        ("llama-bpe", ["I", "'ll", "Ġpay", "Ġ", "123", "45", "Ġ", "Ġnow", "!!Ċ"]),
        ("qwen2", ["I", "'ll", "Ġpay", "Ġ", "1", "2", "3", "4", "5", "Ġ", "Ġnow", "!!Ċ"]),
    ],
)
def test_pieces_of_each_pre_tokenizer(make_gguf, pre, pieces):
    pre_tokenizer = tokenizer_of(make_gguf(pre=pre)[0]).pre_tokenizer
    assert [piece for piece, _ in pre_tokenizer.pre_tokenize_str("I'll pay 12345  now!!\n")] == pieces


def test_qwen2_pieces_are_transformers(make_gguf):
    ours = tokenizer_of(make_gguf(pre="qwen2")[0])
    theirs = Qwen2Tokenizer(vocab={"a": 0, "<|endoftext|>": 1}, merges=[]).backend_tokenizer
    for text in ["Don't PANIC: 3.14159\r\n\r\n  x", "Tiếng Việt có dấu, e\u0301 😀", "a\t\tb   \n c", "100,000 ١٢٣ ½"]:
        normal = ours.normalizer.normalize_str(text)
        assert normal == theirs.normalizer.normalize_str(text)
        assert ours.pre_tokenizer.pre_tokenize_str(normal) == theirs.pre_tokenizer.pre_tokenize_str(normal)


def test_several_ends_of_sequence(make_gguf):
    path, _ = make_gguf(extra={"tokenizer.ggml.eot_token_id": 7, "tokenizer.ggml.eom_token_id": 8})
    assert open_checkpoint(str(path), progress=False).config.eos_token_ids == (260, 7, 8)
