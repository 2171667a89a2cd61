"""llama.cpp through llama-cpp-python's C bindings. job: gguf, threads, unified (one KV cache for all requests, or one each).

All requests share one context and each step is one llama_decode: a token of every decoding sequence, then as many prompt tokens
as fit into its batch. That is what llama-server does with its parallel slots and continuous batching, without HTTP and with a
cheaper sampler (argmax over the logits), so it is llama.cpp at its best. Flash attention, batch sizes: llama.cpp's defaults.
With these requests, one cache for all and one each were equally fast where it was tried.
"""

import ctypes

import llama_cpp as lib
import numpy as np
from measure import main

SLOTS, SLOT_TOKENS = 16, 512  # 16 requests of at most 256 + 256 tokens


def load(job):
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(job["gguf"].encode(), lib.llama_model_default_params())
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_seq_max = SLOTS * SLOT_TOKENS, SLOTS
    params.kv_unified = job["unified"]
    params.n_threads = params.n_threads_batch = job["threads"]
    context = model and lib.llama_init_from_model(model, params)
    if not context:
        raise SystemExit(f"llama.cpp could not load {job['gguf']}")
    vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    batch = lib.llama_batch_init(params.n_batch, 0, 1)

    def generate(prompts, output_lens):
        lib.llama_memory_clear(lib.llama_get_memory(context), False)
        tokens = [list(p) for p in prompts]
        wanted = [len(p) + n for p, n in zip(prompts, output_lens, strict=True)]
        done = [0] * len(prompts)  # tokens whose keys and values are in the context
        while running := [i for i in range(len(prompts)) if len(tokens[i]) < wanted[i]]:
            last_of = fill(batch, running, tokens, done, params.n_batch)
            if code := lib.llama_decode(context, batch):
                raise SystemExit(f"llama_decode returned {code}")
            for i, position in last_of.items():
                logits = lib.llama_get_logits_ith(context, position)
                tokens[i].append(int(np.ctypeslib.as_array(logits, (vocab_size,)).argmax()))
                if len(tokens[i]) == wanted[i]:
                    lib.llama_memory_seq_rm(lib.llama_get_memory(context), i, -1, -1)
        return [t[len(p) :] for t, p in zip(tokens, prompts, strict=True)]

    return generate, f"llama-cpp-python {lib.__version__}"


def fill(batch, running, tokens, done, room):
    """Put the next tokens of `running` into the batch, decoding sequences first. Returns sequence -> place of its last token,
    for those whose last token is in: they get a next one."""
    last_of, n = {}, 0
    for i in sorted(running, key=lambda i: len(tokens[i]) - done[i]):
        take = min(len(tokens[i]) - done[i], room - n)
        for position in range(done[i], done[i] + take):
            batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.seq_id[n][0] = tokens[i][position], position, 1, i
            batch.logits[n] = position == len(tokens[i]) - 1
            n += 1
        done[i] += take
        if take and done[i] == len(tokens[i]):
            last_of[i] = n - 1
    batch.n_tokens = ctypes.c_int32(n)
    return last_of


main(load)
