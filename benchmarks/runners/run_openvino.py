"""OpenVINO GenAI's continuous batching. job: folder (from prepare_openvino.py), threads. Cache for all requests: 1 GB."""

import numpy as np
import openvino
import openvino_genai
from measure import main


def load(job):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 1
    threads = {"INFERENCE_NUM_THREADS": job["threads"]}
    pipeline = openvino_genai.ContinuousBatchingPipeline(job["folder"], scheduler, "CPU", threads)

    def generate(prompts, output_lens):
        ids = [openvino.Tensor(np.array([p], dtype=np.int64)) for p in prompts]
        results = pipeline.generate(ids, [exactly(n) for n in output_lens])
        return [list(result.m_generation_ids[0]) for result in results]

    return generate, f"openvino-genai {openvino_genai.__version__.split('-')[0]}"


def exactly(num_tokens):
    config = openvino_genai.GenerationConfig()
    config.min_new_tokens = config.max_new_tokens = num_tokens
    config.ignore_eos, config.do_sample = True, False
    return config


main(load)
