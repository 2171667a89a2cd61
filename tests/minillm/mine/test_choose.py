"""Which of a learner's parts are taken, and what is said about the others."""

import sys

import pytest

from labs.kit.catalog import find_modules
from minillm.config import EngineConfig
from minillm.errors import ConfigError
from minillm.mine.choose import choose, parse_mine
from minillm.mine.guard import Guard
from minillm.mine.labs import own_parts
from minillm.parts import PARTS

PROMPT = [5, 6, 7]
ATTEMPTED = """
    x = 1

    def start(self, request, keep_free=0):
        return super().start(request, keep_free)
"""
STUB = """
    def start(self, request, keep_free=0):
        raise NotImplementedError
"""


def test_every_part_that_a_lab_names_is_one():
    assert {e.part for module in find_modules() for e in module.exercises if e.part} <= set(PARTS)


def test_a_passing_part_runs_and_every_call_reaches_it(labs, tiny_llm, said):
    labs.write("kv.contiguous")
    plain = tiny_llm(kv="contiguous").generate([PROMPT, PROMPT])
    llm = tiny_llm(kv="contiguous", mine=True)
    mine = llm.generate([PROMPT, PROMPT])
    assert [g.outputs[0].token_ids for g in mine] == [g.outputs[0].token_ids for g in plain]
    calls = llm.engine.scheduler.kv.calls
    assert calls.count("start") == 2 and calls.count("allocate") == 2 * 16  # a prompt's and 15 decodes'; the 16th token ends it
    assert llm.own_parts == ("kv.contiguous",)
    assert said() == ["yours: kv.contiguous, ContiguousKV in labs/c2/m03_kv_contiguous.py"]


def test_none_is_asked_for(labs, tiny_llm, said):
    labs.write("kv.contiguous")
    for nothing in (None, False, [], {}):
        llm = tiny_llm(kv="contiguous", mine=nothing)
        assert llm.own_parts == () and not isinstance(llm.engine.scheduler.kv, Guard)
    assert said() == []


def test_a_part_that_the_flags_do_not_select(labs, tiny_llm, said):
    """No flag is changed; what would select it is said."""
    labs.write("kv.contiguous")
    for mine in (True, ["kv.contiguous"], "kv.contiguous"):
        choice = choose(mine, EngineConfig())
        assert choice.config == EngineConfig() and choice.names == ()
    assert said() == 3 * [
        "kv.contiguous passed, but --kv is paged: add --kv contiguous",
        "--mine: nothing of yours runs, only reference parts",
    ]


def test_what_does_not_pass_is_left_out_and_said_once(labs, said):
    labs.write("sampling.pipeline", "    x = 1\n")
    labs.write("kv.contiguous", passing=False)
    labs.write("text.stop", STUB, passing=False)
    assert choose(True, EngineConfig(kv="contiguous")).names == ("sampling.pipeline",)
    assert said()[1:] == ["not yours yet: kv.contiguous (lab 2.3, attempted, not passing), text.stop (lab 2.8, not attempted)"]


def test_what_mine_may_be():
    assert parse_mine(None) is None and parse_mine("all") is True
    assert parse_mine("kv.contiguous, text.stop") == ["kv.contiguous", "text.stop"]
    with pytest.raises(ConfigError, match="no part ''"):
        choose(parse_mine(""), EngineConfig())


def test_a_file_that_is_no_python_is_passed_over_and_said(labs, said):
    labs.write("sampling.pipeline")
    labs.write("kv.contiguous", "    def start(:\n", passing=False)
    assert choose(True, EngineConfig(kv="contiguous")).names == ("sampling.pipeline",)
    assert said()[0].startswith("--mine passes over a file of yours: labs/c2/m03_kv_contiguous.py, line 6: ")


def test_objects_from_elsewhere():
    """{name: object}: used as they are; only those that the flags select run."""
    choice = choose({"kv.paged": dict, "kv.contiguous": list}, EngineConfig())
    assert choice.names == ("kv.paged",) and choice.objects["kv.paged"] is dict


def test_nothing_passes(labs, said):
    labs.write("kv.contiguous", STUB, passing=False)
    assert choose(True, EngineConfig(kv="contiguous")).names == ()
    assert "nothing of yours runs" in said()[-1] and "labs status" in said()[-1]


@pytest.mark.parametrize("body, state", [(STUB, "not attempted"), (ATTEMPTED, "attempted, not passing")])
def test_a_part_named_must_pass(labs, body, state):
    labs.write("kv.contiguous", body, passing=False)
    expected = rf"--mine kv\.contiguous: your ContiguousKV in labs/c2/m03_kv_contiguous\.py is {state}; `labs check 2\.3`"
    with pytest.raises(ConfigError, match=expected):
        choose(["kv.contiguous"], EngineConfig())


def test_a_pass_is_forgotten_when_the_file_changes(labs):
    file = labs.write("kv.contiguous")
    assert choose(["kv.contiguous"], EngineConfig(kv="contiguous")).names
    file.write_text(file.read_text() + "\n# changed\n")
    with pytest.raises(ConfigError, match=r"is changed since it passed; `labs check 2\.3`"):
        choose(["kv.contiguous"], EngineConfig(kv="contiguous"))


def test_a_part_whose_file_is_no_python_is_known_all_the_same(labs):
    labs.write("kv.contiguous", "    def start(:\n", passing=False)
    with pytest.raises(ConfigError, match=r"your ContiguousKV in .*m03_kv_contiguous\.py is not valid Python; `labs check 2\.3`"):
        choose(["kv.contiguous"], EngineConfig(kv="contiguous"))


def test_a_name_that_is_no_part_or_has_no_lab(labs):
    labs.write("kv.contiguous")
    with pytest.raises(ConfigError, match=r"no part 'kv\.magic'; there are .*kv\.paged"):
        choose(["kv.magic"], EngineConfig())
    with pytest.raises(ConfigError, match=r"--mine kv\.paged: no lab asks for this part; those that one does: kv\.contiguous"):
        choose(["kv.paged"], EngineConfig())


def test_without_a_labs_folder(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "labs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "labs", None)  # what makes an import fail
    assert own_parts() is None
    with pytest.raises(ConfigError, match=r"labs folder.*make setup"):
        choose(True, EngineConfig())


def test_a_file_that_passed_once_and_cannot_be_imported_now(labs):
    """The file is the same, but what it needs has gone."""
    labs.write("kv.contiguous", "    pass\n", before="import a_package_that_went")
    with pytest.raises(ConfigError, match=r"your kv\.contiguous cannot be loaded: .*a_package_that_went.*`labs check 2\.3`"):
        choose(True, EngineConfig(kv="contiguous"))


def test_a_part_that_compiled_graphs_would_go_round(labs, said):
    labs.write("attention.sdpa", "    pass\n")
    assert choose(True, EngineConfig()).config.enforce_eager
    assert said()[-1] == "no compiled graphs: attention.sdpa would not run in them"
    assert not choose(True, EngineConfig(attention="torch")).config.enforce_eager
    assert choose({"attention.sdpa": object}, EngineConfig()).config.enforce_eager
