"""A step counted whole, against the same step counted operator by operator; and ceilings that timings give back."""

import math

import pytest

from shared import models
from shared.operators import Step, operators, total
from shared.phases import fit_phase_cost, phase_cost


def shape(model):
    names = ["num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "intermediate_size", "vocab_size"]
    return {name: getattr(model, name) for name in names}


@pytest.mark.parametrize("name", ["smollm2-135m", "llama-3.1-8b"])
@pytest.mark.parametrize("seqs, new, cached, logits", [(1, 100, 0, 1), (3, 1, 50, 1), (2, 7, 9, 0), (1, 5, 2, 5)])
def test_operators_agree(name, seqs, new, cached, logits):
    model = models.load(name)
    flops, num_bytes = phase_cost([(new, cached, logits)] * seqs, **shape(model))
    counted = operators(model, Step(seqs, new, cached, logits))
    assert flops == total(counted).flops
    rows, q, kv = seqs * new, model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    mlp = 2 * model.hidden_size + 3 * model.intermediate_size
    layer = rows * (model.hidden_size + q + 2 * kv + q + model.hidden_size + 2 * q + mlp)  # what linears and attention pass on
    passed_on = layer * model.num_layers + rows * model.hidden_size
    passed_on += seqs * logits * (model.hidden_size + model.vocab_size)
    assert num_bytes == pytest.approx(total(counted).bytes - 2 * passed_on, rel=1e-12)


def test_a_mixed_step_reads_its_weights_once():
    sizes = shape(models.load("smollm2-135m"))
    both = phase_cost([(64, 0, 1), (1, 30, 1)], **sizes)
    alone = [phase_cost([one], **sizes) for one in [(64, 0, 1), (1, 30, 1)]]
    assert both[0] == sum(flops for flops, _ in alone)
    assert both[1] < sum(num_bytes for _, num_bytes in alone) - 2 * 100e6


@pytest.mark.parametrize("batch", [[], [(0, 1, 0)], [(1, -1, 0)], [(2, 0, 3)], [(2, 0, -1)]])
def test_nonsense_is_refused(batch):
    with pytest.raises(ValueError):
        phase_cost(batch, **shape(models.load("smollm2-135m")))


@pytest.mark.parametrize("peak, bandwidth", [(165e12, 1e12), (80e9, 10e9)])
def test_ceilings_come_back(peak, bandwidth):
    work = [(r * 1e9 * peak / bandwidth, 1e9) for r in (5, 0.1, 0.4, 2)]
    timings = [(f, b, max(f / peak, b / bandwidth)) for f, b in work]
    assert fit_phase_cost(timings) == pytest.approx((peak, bandwidth))


def test_noise_is_averaged_in_logarithms():
    timings = [(1, 10, 10 * 1.1), (1, 10.5, 10.5 / 1.1), (100, 1, 100 / 1.2), (100, 2, 100 * 1.2)]
    assert fit_phase_cost(timings) == pytest.approx((1, 1))
    assert math.isclose(fit_phase_cost(timings[::-1])[0], 1)


def test_one_intensity_says_nothing():
    with pytest.raises(ValueError, match="two different intensities"):
        fit_phase_cost([(1, 2, 3), (2, 4, 5)])
