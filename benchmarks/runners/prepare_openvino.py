"""A GGUF file as an OpenVINO model. job: gguf (in fp16), precision (fp16 or int8), folder (to be made). Answers with the folder.

OpenVINO GenAI reads the GGUF and writes its own format; int8 is NNCF's weight compression, per output channel, which is also what
OpenVINO's exporter applies.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import nncf
import openvino
import openvino_genai

job = json.load(sys.stdin)
target = Path(job["folder"])
with tempfile.TemporaryDirectory(dir=target.parent) as temp:
    link = Path(temp) / "model.gguf"  # GenAI writes beside the file that it reads
    link.symlink_to(Path(job["gguf"]).resolve())
    openvino_genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)
    link.unlink()
    whole = Path(shutil.copytree(temp, Path(temp) / "whole"))
    if job["precision"] == "int8":
        model = openvino.Core().read_model(whole / "openvino_model.xml")
        smaller = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
        written = Path(temp) / "int8.xml"
        openvino.save_model(smaller, written)
        del model, smaller  # they map the files that are replaced now
        for suffix in (".xml", ".bin"):
            written.with_suffix(suffix).replace(whole / f"openvino_model{suffix}")
    whole.chmod(0o755)  # copied from the temporary folder, which is for its owner only
    whole.replace(target)
print(json.dumps(str(target)))
