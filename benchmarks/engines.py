"""Each engine behind one call: generate(prompts, output_lens) -> the tokens of each answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Generate = Callable[[list[list[int]], list[int]], list[list[int]]]


def minillm(folder: Path, dtype: str, threads: int) -> Generate:
    from minillm import LLM, SamplingParams

    llm = LLM(str(folder), dtype=dtype, threads=threads, max_model_len=1024)

    def generate(prompts: list[list[int]], output_lens: list[int]) -> list[list[int]]:
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in output_lens]
        return [g.outputs[0].token_ids for g in llm.generate(prompts, params)]

    return generate


def transformers(folder: Path, dtype: str, threads: int) -> Generate:
    """generate() on one left-padded batch, as its documentation shows: it runs until the longest answer is done."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="sdpa")

    @torch.inference_mode()
    def generate(prompts: list[list[int]], output_lens: list[int]) -> list[list[int]]:
        width, longest = max(map(len, prompts)), max(output_lens)
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        out = model.generate(
            ids, attention_mask=mask, do_sample=False, min_new_tokens=longest, max_new_tokens=longest, pad_token_id=0
        )
        return [row[width : width + n].tolist() for row, n in zip(out, output_lens, strict=True)]

    return generate


ENGINES: dict[str, Callable[[Path, str, int], Generate]] = {"minillm": minillm, "transformers": transformers}
