"""CTranslate2. job: folder (from prepare_ctranslate2.py), precision, threads.

It takes a batch as one block: the longer prompts' last tokens are fed one a step, finished answers leave, nothing refills it.
One batch of 16 was faster than groups of 1, 2, 4 or 8 similar prompts where it was tried.
"""

from collections import Counter

import ctranslate2
from measure import main


def load(job):
    generator = ctranslate2.Generator(job["folder"], compute_type=job["precision"], intra_threads=job["threads"])

    def generate(prompts, output_lens):
        given = Counter()

        def is_done(step):
            given[step.batch_id] += 1
            return given[step.batch_id] == output_lens[step.batch_id]

        texts = [[f"<{token}>" for token in prompt] for prompt in prompts]  # as prepare_ctranslate2.py spells them
        results = generator.generate_batch(
            texts,
            max_length=max(output_lens),
            end_token=[],
            include_prompt_in_result=False,
            callback=is_done,
        )
        return [result.sequences_ids[0] for result in results]

    return generate, f"ctranslate2 {ctranslate2.__version__}"


main(load)
