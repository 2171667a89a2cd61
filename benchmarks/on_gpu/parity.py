"""The engine's tokens on a small model in float32: with our kernels and with CUDA graphs the same as with torch alone."""

from __future__ import annotations

from collections.abc import Iterator

from on_gpu.build import SMALL, close, make_llm, small_folder
from on_gpu.worker import Report, Setting, Work

PROMPTS = [[5, 9, 200], [7], list(range(40)), [1, 2] * 9, [44] * 16]
COMPARED = (  # what is compared, what with
    ({"kernels": "torch", "graphs": True}, {"kernels": "torch"}),
    ({"kernels": "triton"}, {"kernels": "torch"}),
    ({"kernels": "triton", "graphs": True}, {"kernels": "torch"}),
    ({"kernels": "triton", "quantization": "int4", "graphs": True}, {"kernels": "triton", "quantization": "int4"}),
    ({"kernels": "triton", "quantization": "int8", "graphs": True}, {"kernels": "triton", "quantization": "int8"}),
)


def cases(setting: Setting) -> Iterator[tuple[str, Work]]:
    known: dict[str, list[list[int]]] = {}  # answers of references, each needed more than once
    for options, reference in COMPARED:
        name = "engine." + ".".join(str(v) if v is not True else k for k, v in options.items())
        yield name, lambda report, o=options, r=reference, name=name: compare(report, setting, name, o, r, known)


def compare(report: Report, setting: Setting, name: str, options: dict, reference: dict, known: dict) -> None:
    if str(reference) not in known:
        known[str(reference)] = answers(setting, **reference)
    ours, theirs = answers(setting, **options), known[str(reference)]
    wrong = sum(a != b for a, b in zip(ours, theirs, strict=True))
    title = f"{name}: requests with other tokens than {'.'.join(map(str, reference.values()))}"
    report.measured(f"correctness.{name}", [wrong], f"of {len(ours)}", title, checkpoint="random weights", dtype="float32")
    assert not wrong, f"{wrong} of {len(ours)} requests got other tokens"


def answers(setting: Setting, **options) -> list[list[int]]:
    """Greedy and drawn answers, of lengths that make every batch size occur."""
    from minillm.request import SamplingParams

    wishes = ({"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": 3}, {"temperature": 1.0, "top_k": 50, "seed": 4})
    length, longer = (1, 1) if setting.rehearsal else (12, 3)
    with small_folder(SMALL) as folder:
        llm = make_llm(
            setting, str(folder), dtype="float32", max_model_len=128, max_num_seqs=4, max_num_batched_tokens=64, **options
        )
        try:
            params = [
                SamplingParams(max_tokens=length + longer * i, ignore_eos=True, **wishes[i % 3]) for i in range(len(PROMPTS))
            ]
            return [g.outputs[0].token_ids for g in llm.generate(PROMPTS, params)]
        finally:
            close(llm)
