"""A cache of its own for every test, and tiny checkpoints written on the spot."""

import json

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from minillm.config import ModelConfig
from minillm.model.checkpoints.dummy import byte_tokenizer
from minillm.model.checkpoints.names import expected_tensors

RAW = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 258,
    "torch_dtype": "float32",
}
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MINILLM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def raw_config():
    """The contents of a tiny config.json, to change at will."""
    return dict(RAW)


def random_state(raw: dict, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(s, generator=generator) for n, s in expected_tensors(ModelConfig.from_hf(raw)).items()}


@pytest.fixture
def make_folder(tmp_path):
    """make_folder(raw, state, name=...) -> a folder in Hugging Face's layout."""

    def make(raw: dict, state: dict | None = None, name: str = "tiny"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(raw))
        byte_tokenizer(raw.get("vocab_size", 300)).save(str(folder / "tokenizer.json"))
        save_file(random_state(raw) if state is None else state, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return make


@pytest.fixture
def make_gguf(tmp_path):
    return lambda **options: write_gguf(tmp_path, **options)


def write_gguf(folder, *, arch="llama", kind="F32", name="tiny.gguf", tied=True, drop=(), extra=None, pre="smollm", change=None):
    """A tiny GGUF as llama.cpp's exporter writes it. Returns (path, the Hugging Face state that went in).

    kind: type of the matrices. drop: metadata keys or tensors to leave out. extra: metadata to add, change: tensors to add.
    """
    raw = RAW | {"architectures": [ARCHITECTURES[arch]], "model_type": arch, "tie_word_embeddings": tied}
    if arch == "qwen3":
        raw["head_dim"] = 32  # not hidden_size / num_attention_heads
        extra = {"qwen3.attention.key_length": 32, "qwen3.attention.value_length": 32} | (extra or {})
    state = random_state(raw)
    path = folder / name
    writer = gguf.GGUFWriter(path, arch)
    tokens, merges = tiny_vocabulary(raw["vocab_size"])
    kinds = [3 if t.startswith("<|") else 4 if t == "<tool>" else 5 if t.startswith("[PAD") else 1 for t in tokens]
    metadata = {
        f"{arch}.block_count": raw["num_hidden_layers"],
        f"{arch}.context_length": raw["max_position_embeddings"],
        f"{arch}.embedding_length": raw["hidden_size"],
        f"{arch}.feed_forward_length": raw["intermediate_size"],
        f"{arch}.attention.head_count": raw["num_attention_heads"],
        f"{arch}.attention.head_count_kv": raw["num_key_value_heads"],
        f"{arch}.attention.layer_norm_rms_epsilon": 3e-6,
        f"{arch}.rope.freq_base": 12345.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": tokens.index("<|start|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|end|>"),
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    } | (extra or {})
    add = {
        str: writer.add_string,
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        list: writer.add_array,
    }
    for key, value in metadata.items():
        if key not in drop:
            add[type(value)](key, value)
    for hf, tensor in state.items():
        tensor = permute(hf, tensor, raw) if arch == "llama" else tensor
        if gguf_name(hf) not in drop:
            _add_tensor(writer, gguf_name(hf), tensor.numpy(), kind if tensor.dim() == 2 else "F32")
    for extra_name, array in (change or {}).items():
        writer.add_tensor(extra_name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, state


def _add_tensor(writer, name, array, kind):
    if kind == "F32":
        writer.add_tensor(name, array)
    else:
        quant = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quantize(array, quant), raw_dtype=quant)


def permute(name: str, tensor: torch.Tensor, raw: dict) -> torch.Tensor:
    """What llama.cpp's exporter does to q and k."""
    if ".q_proj" not in name and ".k_proj" not in name:
        return tensor
    heads = raw["num_attention_heads"] if ".q_proj" in name else raw["num_key_value_heads"]
    array = tensor.numpy().reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return torch.from_numpy(np.ascontiguousarray(array.swapaxes(1, 2)).reshape(tensor.shape))


def gguf_name(hf: str) -> str:
    for old, new in (
        ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output"), ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"), ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"), ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"),
    ):  # fmt: skip
        hf = hf.replace(old, new)
    return hf


def tiny_vocabulary(size: int) -> tuple[list[str], list[str]]:
    """Bytes, three merges, special tokens, one added word, and padding up to size."""
    tokens = list(byte_tokenizer(256 + 3).get_vocab().items())
    tokens = [t for t, i in sorted(tokens, key=lambda item: item[1]) if i < 256]
    tokens += ["Ġt", "he", "Ġthe", "<|start|>", "<|end|>", "<tool>"]
    return tokens + [f"[PAD{i}]" for i in range(len(tokens), size)], ["Ġ t", "h e", "Ġt he"]
