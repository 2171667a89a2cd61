"""A Hugging Face folder of a Llama-like model as a CTranslate2 model. job: source, precision, folder (to be made).

CTranslate2's own converter wants torch and transformers; its model specification is all that is needed.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
from ctranslate2.converters import utils
from ctranslate2.specs import common_spec, transformer_spec


def read_weights(path):
    """Name -> fp32 array of a safetensors file in bf16: 8 bytes of header length, a JSON header, then the tensors."""
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    header_bytes = int(raw[:8].view("<u8")[0])
    header = json.loads(bytes(raw[8 : 8 + header_bytes]))
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            sys.exit(f"{path.name}: {name} is {entry['dtype']}; only bf16 checkpoints are converted")
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        upper_half = np.frombuffer(raw[begin:end].tobytes(), dtype="<u2").astype(np.uint32) << 16
        weights[name] = upper_half.view(np.float32).reshape(entry["shape"])
    return weights


def linear(*weights):
    spec = common_spec.LinearSpec()
    spec.weight = np.concatenate(weights)
    return spec


def specify(config, weights):
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        config["num_hidden_layers"],
        config["num_attention_heads"],
        activation=common_spec.Activation.SWISH,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,  # the whole head
        rotary_interleave=False,
        rotary_base=config["rope_theta"],
        num_heads_kv=config["num_key_value_heads"],
    )
    spec.decoder.scale_embeddings = False
    spec.decoder.embeddings.weight = weights["model.embed_tokens.weight"]
    spec.decoder.layer_norm.gamma = weights["model.norm.weight"]
    spec.decoder.projection.weight = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    for i, layer in enumerate(spec.decoder.layer):
        w = {k.removeprefix(f"model.layers.{i}."): v for k, v in weights.items() if k.startswith(f"model.layers.{i}.")}
        layer.self_attention.layer_norm.gamma = w["input_layernorm.weight"]
        layer.ffn.layer_norm.gamma = w["post_attention_layernorm.weight"]
        qkv = [linear(w[f"self_attn.{part}_proj.weight"]) for part in "qkv"]
        utils.fuse_linear(layer.self_attention.linear[0], qkv)
        layer.self_attention.linear[1].weight = w["self_attn.o_proj.weight"]
        layer.ffn.linear_0.weight = w["mlp.gate_proj.weight"]
        layer.ffn.linear_0_noact.weight = w["mlp.up_proj.weight"]
        layer.ffn.linear_1.weight = w["mlp.down_proj.weight"]
    # Tokens are given and taken as ids, so their spelling plays no part.
    spec.register_vocabulary([f"<{i}>" for i in range(config["vocab_size"])])
    spec.config.layer_norm_epsilon = config["rms_norm_eps"]
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "<0>"
    return spec


job = json.load(sys.stdin)
source, target = Path(job["source"]), Path(job["folder"])
spec = specify(json.loads((source / "config.json").read_text("utf-8")), read_weights(source / "model.safetensors"))
spec.validate()
spec.optimize(quantization=job["precision"])
partial = target.with_suffix(".partial")
shutil.rmtree(partial, ignore_errors=True)
partial.mkdir()
spec.save(str(partial))
partial.replace(target)
print(json.dumps(str(target)))
