"""minillm, in our own environment. job: model, dtype, quantization, enforce_eager, threads."""

from measure import main

from minillm import LLM, SamplingParams, __version__


def load(job):
    options = {key: job[key] for key in ("dtype", "quantization", "enforce_eager", "threads")}
    llm = LLM(job["model"], max_model_len=1024, **options)

    def generate(prompts, output_lens):
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in output_lens]
        return [g.outputs[0].token_ids for g in llm.generate(prompts, params)]

    return generate, f"minillm {__version__}"


main(load)
