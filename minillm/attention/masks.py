"""Which earlier tokens a token may look at, when not at all of them."""

from __future__ import annotations

import torch
from torch import Tensor


def sliding_window_mask(
    num_queries: int, num_keys: int, window: int, num_sinks: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """[num_queries, num_keys] bool, True where a query may look: at the newest `window` tokens, and at the sinks.

    The queries are the last num_queries of num_keys tokens. The token at position p sees the tokens p - window + 1 to p, itself
    included (Jiang et al. 2023, Mistral 7B, arXiv 2310.06825, section 2), and besides them the text's first num_sinks tokens, as
    far as they are not later than itself (Xiao et al. 2023, StreamingLLM, arXiv 2309.17453). The two may overlap.
    Raises ValueError unless 0 <= num_queries <= num_keys, window is at least 1 and num_sinks is not negative.
    """
    if not 0 <= num_queries <= num_keys:
        raise ValueError(f"the queries are some of the keys' tokens, got {num_queries} queries and {num_keys} keys")
    if window < 1 or num_sinks < 0:
        raise ValueError(f"a window holds at least the token itself, and sinks are not negative; got {window} and {num_sinks}")
    key = torch.arange(num_keys, device=device)
    query = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
    recent = key > query - window
    return (key <= query) & (recent | (key < num_sinks))
