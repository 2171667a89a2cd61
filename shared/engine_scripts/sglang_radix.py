"""SGLang's own radix cache, driven by hand: no model and no GPU, only the tree that says which prefixes are in the cache.

Runs in the environment of the engine `sglang` (shared/engines.py). Reads from standard input, as JSON:

    page_size   tokens a page; matches are cut to whole pages
    operations  [{"op": "start", "id", "tokens"}    a request arrives: match its prompt, lock what was found
                 {"op": "finish", "id", "tokens"}   it is done: insert prompt and answer, unlock
                 {"op": "evict", "num_tokens"}]     make room: drop leaves, least recently used first
                tokens: ranges [[first, end], ...]

Prints {"version", "torch", "steps"}; a step says what its operation answered and how the cache stands after it:

    matched    of a start: tokens found in the tree
    known      of a finish: tokens that were in the tree before the insertion
    evicted    of an evict: tokens dropped; whole leaves go, so it may be more than asked for, or less where the rest is locked
    total, evictable, protected    tokens in the tree, and of them those that no request holds, or one holds
    tree       [[depth, first token, tokens, locks], ...], a row a node below the root, parents first, children by first token
"""

import importlib.machinery
import json
import sys
from array import array
from unittest.mock import MagicMock

# SGLang imports torchvision for images; nothing of it is used here, and its wheels bring CUDA.
for name in ("", ".io", ".transforms", ".transforms.functional", ".transforms.v2", ".transforms.v2.functional"):
    stub = MagicMock(name=f"torchvision{name}")
    stub.__spec__ = importlib.machinery.ModuleSpec(f"torchvision{name}", None)
    stub.__path__, stub.__version__ = [], "0"
    sys.modules[f"torchvision{name}"] = stub

import sglang  # noqa: E402
import torch  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey  # noqa: E402


class Pool:
    """Stands for the pool of KV slots: counts what the tree gives back."""

    device = torch.device("cpu")
    freed = 0

    def free(self, slots: torch.Tensor) -> None:
        self.freed += len(slots)

    def free_segment(self, slots: torch.Tensor, **_) -> None:
        self.freed += len(slots)


def key(ranges: list[list[int]]) -> RadixKey:
    return RadixKey(array("q", [token for first, end in ranges for token in range(first, end)]))


def rows(node, depth: int = 0) -> list[list[int]]:
    found = []
    for child in sorted(node.children.values(), key=lambda child: child.key.token_ids[0]):
        found += [[depth, child.key.token_ids[0], len(child.key), child.lock_ref], *rows(child, depth + 1)]
    return found


def main(job: dict) -> dict:
    pool = Pool()
    cache = RadixCache.create_simulated(mock_allocator=pool, page_size=job["page_size"])
    held, steps, next_slot = {}, [], 0
    for operation in job["operations"]:
        match operation["op"]:
            case "start":
                found = cache.match_prefix(MatchPrefixParams(key=key(operation["tokens"])))
                held[operation["id"]] = found.last_device_node
                cache.inc_lock_ref(found.last_device_node)
                answer = {"matched": found.device_prefix_len}
            case "finish":
                tokens = key(operation["tokens"])
                slots = torch.arange(next_slot, next_slot + len(tokens))
                next_slot += len(tokens)
                answer = {"known": cache.insert(InsertParams(key=tokens, value=slots)).prefix_len}
                cache.dec_lock_ref(held.pop(operation["id"]))
            case "evict":
                before = pool.freed
                answer = {"evicted": cache.evict(EvictParams(num_tokens=operation["num_tokens"])).num_tokens_evicted}
                assert pool.freed - before == answer["evicted"], "the tree and the pool disagree"
            case other:
                raise ValueError(f"operation {other!r} is not one of start, finish, evict")
        sizes = {"total": cache.total_size(), "evictable": cache.evictable_size(), "protected": cache.protected_size()}
        steps.append({**answer, **sizes, "tree": rows(cache.root_node)})
    return {"version": sglang.__version__, "torch": torch.__version__, "steps": steps}


if __name__ == "__main__":
    print("\n" + json.dumps(main(json.load(sys.stdin))))
