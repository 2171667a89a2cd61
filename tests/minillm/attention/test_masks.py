import pytest
import torch
from transformers.masking_utils import sliding_window_causal_mask_function

from minillm.attention.masks import sliding_window_mask
from minillm.model.ops import causal_mask

SIZES = [(0, 0), (0, 5), (1, 1), (1, 9), (4, 9), (9, 9)]


@pytest.mark.parametrize("queries, keys", SIZES)
@pytest.mark.parametrize("window", [1, 2, 5, 9, 20])
def test_without_sinks_it_is_the_engines_mask_and_transformers(queries, keys, window):
    mask = sliding_window_mask(queries, keys, window)
    assert torch.equal(mask, causal_mask(queries, keys, window))
    theirs = sliding_window_causal_mask_function(window)
    for row, p in enumerate(range(keys - queries, keys)):
        for s in range(keys):
            assert mask[row, s] == theirs(0, 0, torch.tensor(p), torch.tensor(s))


def test_sinks_come_on_top_and_never_before_their_time():
    mask = sliding_window_mask(10, 10, window=3, num_sinks=2)
    assert mask.sum(1).tolist() == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5]
    assert not (mask & ~causal_mask(10, 10)).any()
    assert torch.equal(sliding_window_mask(4, 10, 3, 2), mask[-4:])
    assert torch.equal(sliding_window_mask(10, 10, 1, 10), causal_mask(10, 10))


@pytest.mark.parametrize("arguments", [(5, 4, 2, 0), (-1, 4, 2, 0), (2, 4, 0, 0), (2, 4, 2, -1)])
def test_what_cannot_be_is_refused(arguments):
    with pytest.raises(ValueError, match=r"queries|window"):
        sliding_window_mask(*arguments)
