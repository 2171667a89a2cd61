"""The pulled GGUF file in other precisions, for engines that read GGUF: the same weights, requantized.

    gguf_model("smollm2-135m", "q8_0") -> .../engines/models/SmolLM2-135M-Instruct.Q8_0.gguf, written on first use

minillm's own weights are the Q4_1 file dequantized to bf16; so are these, hence every engine runs the same model.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, dequantize, quantize

from minillm.errors import CheckpointError
from minillm.model.checkpoints import pull
from shared.engines import engines_home

# precision -> (type of the matrices, what general.file_type says)
PRECISIONS = {
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "bf16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "fp16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
}


def gguf_model(model: str, precision: str) -> Path:
    """A GGUF file of a model that was pulled as GGUF. precision: q4_1 (the pulled file itself), q8_0, bf16 or fp16."""
    source = next(pull(model).glob("*.gguf"), None)
    if source is None:
        raise CheckpointError(f"{model} did not come as a GGUF file; peers that read GGUF run with --model smollm2-135m only")
    if precision == "q4_1":
        return source
    matrix_type, file_type = PRECISIONS[precision]
    target = engines_home() / "models" / source.name.replace("Q4_1", matrix_type.name)
    if not target.is_file() or target.stat().st_mtime < source.stat().st_mtime:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".partial-{os.getpid()}")
        try:
            requantize(source, partial, matrix_type, file_type)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    return target


def requantize(source: Path, target: Path, matrix_type: GGMLQuantizationType, file_type: LlamaFileType) -> None:
    """Copy a GGUF file with its matrices in another type. Vectors (norms) stay fp32; metadata is copied as it is."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue  # the writer's own
        value = int(file_type) if name == "general.file_type" else field.contents()
        writer.add_key_value(name, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        wanted = matrix_type if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quantize(values, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
