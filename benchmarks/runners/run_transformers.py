"""transformers, in our own environment: generate() on one left-padded batch, as documented. job: folder, dtype, threads.

The batch runs until its longest answer is done; what the others were given beyond their length is cut off and not counted.
"""

import torch
import transformers
from measure import main


def load(job):
    torch.set_num_threads(job["threads"])
    dtype = getattr(torch, job["dtype"])
    model = transformers.AutoModelForCausalLM.from_pretrained(job["folder"], dtype=dtype, attn_implementation="sdpa")

    @torch.inference_mode()
    def generate(prompts, output_lens):
        width, longest = max(map(len, prompts)), max(output_lens)
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        exactly = {"min_new_tokens": longest, "max_new_tokens": longest, "do_sample": False, "pad_token_id": 0}
        out = model.generate(ids, attention_mask=mask, **exactly)
        return [row[width : width + n].tolist() for row, n in zip(out, output_lens, strict=True)]

    return generate, f"transformers {transformers.__version__}"


main(load)
