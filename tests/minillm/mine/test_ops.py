"""A learner's operators in the engine: each is called, faults are named, and compiled graphs are not used instead of them."""

import textwrap
from pathlib import Path

import pytest
import torch

from labs.kit.catalog import find_modules
from labs.kit.progress import Progress
from minillm.config import EngineConfig
from minillm.mine.choose import choose
from minillm.mine.faults import Origin, OwnPartError
from minillm.mine.guards import guarded
from minillm.request import SamplingParams

HEADS = {
    "rms_norm": "x: Tensor, weight: Tensor, eps: float",
    "rope": "x: Tensor, cos: Tensor, sin: Tensor",
    "gqa_attention": "q: Tensor, k: Tensor, v: Tensor, scale: float, sliding_window: int | None = None",
    "swiglu": "gate: Tensor, up: Tensor",
}
ALL = tuple(f"ops.{name}" for name in HEADS)
PROMPT = [5, 6, 7]


@pytest.fixture
def write(labs):
    """write(rope="return ..."): a lab of four operators, all of which pass. By default they say so and call the reference."""

    def write(**bodies):
        parts = ["from torch import Tensor", "from labs.kit import exercise", "from minillm.model import ops"]
        for name, head in HEADS.items():
            arguments = ", ".join(word.split(":")[0] for word in head.split(", "))
            body = bodies.get(name, f"print({name!r})\nreturn ops.{name}({arguments})")
            parts += [
                f'@exercise(reference="minillm.model.ops:{name}", part="ops.{name}")',
                f"def {name}({head}) -> Tensor:\n" + textwrap.indent(body, "    "),
            ]
        file = labs.folder / "c2" / "m01_one_token.py"
        file.write_text("\n\n".join(parts) + "\n")
        progress = Progress.load()
        for exercise in (e for module in find_modules() for e in module.exercises):
            progress.record(exercise, True, [])
        progress.save()

    return write


def test_every_operator_of_the_layer_is_the_learners(write, tiny_llm, capsys):
    write()
    plain = tiny_llm().generate([PROMPT])[0].outputs[0]
    llm = tiny_llm(mine=True, attention="torch")
    assert llm.own_parts == ALL
    assert llm.generate([PROMPT], SamplingParams(max_tokens=1))[0].outputs[0].token_ids == plain.token_ids[:1]
    counted = capsys.readouterr().out.split()
    # two layers, one step: two norms a layer and one at the end, queries and keys turned, one attention, one gate
    assert {name: counted.count(name) for name in HEADS} == {"rms_norm": 5, "rope": 4, "gqa_attention": 2, "swiglu": 2}


def test_whether_gqa_attention_runs_is_attentions_flag_to_say(write, said):
    write()
    assert choose(True, EngineConfig()).names == ALL[:2] + ALL[3:]
    assert "ops.gqa_attention passed, but --attention is sdpa: add --attention torch" in said()
    assert choose(["ops.gqa_attention"], EngineConfig()).config.enforce_eager is False
    assert choose(["ops.gqa_attention"], EngineConfig(attention="torch")).config.enforce_eager


def test_graphs_have_the_references_inside(write, said):
    write()
    assert choose(["ops.swiglu"], EngineConfig()).config.enforce_eager
    assert said()[-1] == "no compiled graphs: ops.swiglu would not run in them"


FAULTS = {
    "raises": ("swiglu", "return gate.nothing", r"raised AttributeError: .*nothing"),
    "None": ("rms_norm", "x * weight", r"must return a tensor \[6, 32\] float32, as its first argument; it returned NoneType"),
    "a shape": (
        "rope",
        "return x.flatten(1)",
        r"must return a tensor \[6, 4, 8\] .* returned a tensor \[6, 32\] float32",
    ),
    "a dtype": ("gqa_attention", "return q.double()", r"it returned a tensor \[3, 4, 8\] float64"),
    "NaN": ("swiglu", "return gate * float('nan')", "returned NaN or infinity for finite arguments"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_the_engine_goes_on(name, write, tiny_llm):
    op, body, complaint = FAULTS[name]
    write(**{op: body})
    llm = tiny_llm(mine=True, attention="torch", max_num_seqs=4)
    where = rf"your ops\.{op} \(lab 2\.1, {op}, labs/c2/m01_one_token\.py:\d+\) .*{complaint}.*`labs check 2\.1`"
    with pytest.raises(OwnPartError, match=where) as caught:
        llm.generate([PROMPT, PROMPT[:]], SamplingParams(max_tokens=4, ignore_eos=True))
    assert "\n" not in str(caught.value) and not llm.engine.has_unfinished


def test_what_was_not_finite_before_is_no_fault_of_an_operator():
    op = guarded(Origin("ops.swiglu", "swiglu", "2.1", Path("x.py"), "x.py", 1), lambda gate, up: gate * up)
    assert op(torch.tensor([torch.inf]), torch.tensor([1.0])).isinf().all()
    with pytest.raises(OwnPartError, match="NaN or infinity"):
        op(torch.tensor([3e38]), torch.tensor([10.0]))
