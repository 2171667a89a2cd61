"""The committed table is of today's kernels, what it promises holds, and the rules that say so can fail."""

from dataclasses import replace

import pytest
from minillm.kernels.catalog import shipped, variant
from minillm.kernels.instruments import table
from minillm.kernels.instruments.inspect import InspectError
from minillm.kernels.instruments.table import Row, faults, worse
from minillm.kernels.shipped import Shipped

SHIPPED = Shipped("a", "m:a", {}, has_dot=True)
ROW = Row(
    name="a",
    arch="sm_90",
    digest="d",
    registers=64,
    num_warps=4,
    blocks=8,
    occupancy=0.5,
    limiter="registers",
    widest_load=128,
    wide_share=1.0,
    tensor_core_instructions=8,
)
REFRESH = "`minillm kernels --write` brings kernels/compiled.json up to date"


@pytest.fixture(scope="module")
def recorded():
    rows = table.recorded()
    assert rows, f"there is no table, or another Triton made it: {REFRESH}"
    return rows


def test_every_variant_is_in_the_table_and_nothing_else(recorded):
    wanted = {(variant.name, arch) for variant, arch in table.pairs(shipped())}
    assert set(recorded) == wanted, REFRESH


def test_no_change_made_a_variant_worse(recorded):
    """Rows of another source than today's are compiled again, which takes its time; rows of today's are known."""
    wanted = [(each, arch) for each, arch in table.pairs(shipped()) if (each.name, arch) in recorded]
    stale = [(each, arch) for each, arch in wanted if recorded[each.name, arch].digest != table.digest(each)]
    now = table.rows(stale)
    complaints = {row.key: what for row in now if (what := worse(recorded[row.key], row))}
    assert complaints == {}, "worse than recorded; mend it, or `minillm kernels --write --accept`"
    assert [row.key for row in now] == [], f"no worse, but changed: {REFRESH}"


def test_every_promise_holds(recorded):
    """No spills, 128-bit loads and tensor cores for sm_80, sm_89 and sm_90, or a reason why not."""
    promised = [row for row in recorded.values() if row.arch in table.PROMISED]
    assert {row.key: what for row in promised if (what := faults(variant(row.name), row))} == {}


def test_the_table_is_what_the_compiler_says(recorded):
    """One variant, compiled here and now."""
    each = shipped()[0]
    (row,) = table.rows([(each, "sm_80")])
    assert row == recorded[each.name, "sm_80"], REFRESH


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"spill_bytes": 8}, "spilled bytes 0 -> 8"),
        ({"registers": 73}, "registers 64 -> 73"),
        ({"widest_load": 64}, "bits of the widest load 128 -> 64"),
        ({"wide_share": 0.9}, "share of wide loads 1.0 -> 0.9"),
        ({"tensor_core_instructions": 0}, "tensor-core ops 8 -> 0"),
        ({"blocks": 7}, "blocks on a multiprocessor 8 -> 7"),
        ({"error": "it does not compile"}, "it does not compile"),
    ],
)
def test_what_is_worse(change, complaint):
    changed = replace(ROW, **change)
    assert worse(ROW, changed) == [complaint]
    assert worse(changed, ROW) == []  # the way back is an improvement
    assert worse(changed, changed) == []


def test_what_is_no_worse():
    assert worse(ROW, replace(ROW, registers=72, wide_share=0.96, tensor_core_instructions=4, shared_bytes=99, digest="e")) == []
    assert worse(replace(ROW, blocks=None), replace(ROW, blocks=None)) == []  # AMD


@pytest.mark.parametrize(
    "change, fault",
    [
        ({"spill_bytes": 8}, "spills 8 bytes a thread, with no reason stated"),
        ({"widest_load": 32}, "loads 32 bits at most, not 128, with no reason stated"),
        ({"tensor_core_instructions": 0}, "its tl.dot uses no tensor cores"),
        ({"blocks": 0, "limiter": "shared memory"}, "does not fit on a multiprocessor (shared memory), with no reason stated"),
        ({"error": "it does not compile"}, "it does not compile"),
    ],
)
def test_what_is_a_fault(change, fault):
    assert faults(SHIPPED, replace(ROW, **change)) == [fault]
    assert faults(SHIPPED, ROW) == []


def test_a_reason_excuses_spills_but_not_a_dot_without_tensor_cores():
    reasoned = replace(SHIPPED, reason="because")
    assert faults(reasoned, replace(ROW, spill_bytes=8, widest_load=32, blocks=0)) == []
    assert faults(reasoned, replace(ROW, tensor_core_instructions=0)) == ["its tl.dot uses no tensor cores"]
    assert (
        faults(replace(SHIPPED, wide_loads=False, has_dot=False), replace(ROW, widest_load=8, tensor_core_instructions=0)) == []
    )


def test_a_variant_is_compiled_from_its_lowest_capability_on():
    eight_bit = replace(SHIPPED, min_sm=89)
    assert [arch for _, arch in table.pairs([eight_bit], ["sm_80", "sm_86", "rtx-4090", "sm_90", "gfx942"])] == [
        "rtx-4090",
        "sm_90",
        "gfx942",
    ]


def test_what_is_known_is_not_compiled_again(monkeypatch):
    """And a row whose source changed is."""
    asked = []

    def inspect_all(pairs, progress=None):
        asked.extend((variant.name, arch) for variant, arch in pairs)
        return [InspectError("no")] * len(pairs)

    monkeypatch.setattr(table, "inspect_all", inspect_all)
    each, other = shipped()[:2]
    known = replace(ROW, name=each.name, digest=table.digest(each))
    stale = replace(ROW, name=other.name)
    got = table.rows([(each, "h100-sxm"), (other, "sm_90")], {row.key: row for row in (known, stale)})
    assert got[0] == known
    assert (got[1].error, got[1].digest) == ("no", table.digest(other))
    assert asked == [(other.name, "sm_90")]


def test_a_digest_is_of_code_and_arguments():
    each = shipped()[0]
    assert table.digest(each) == table.digest(replace(each, name="another name", reason="another reason"))
    different = [
        replace(each, num_warps=each.num_warps * 2),
        replace(each, aligned=()),
        replace(each, constexprs={}),
        replace(each, kernel=shipped()[-1].kernel),
    ]
    assert table.digest(each) not in [table.digest(other) for other in different]


def test_the_file_comes_back_as_it_was_written(tmp_path, monkeypatch):
    found = [ROW, replace(ROW, arch="gfx942", blocks=None, occupancy=None, limiter=None), Row("b", "sm_120", "e", error="no")]
    table.write(found, tmp_path / "t.json")
    assert list(table.recorded(tmp_path / "t.json").values()) == found
    assert table.recorded(tmp_path / "none.json") == {}
    monkeypatch.setattr(table.triton, "__version__", "9.9")
    assert table.recorded(tmp_path / "t.json") == {}


def test_the_text_has_a_line_a_row():
    lines = table.text(
        [ROW, replace(ROW, arch="gfx942", blocks=None, occupancy=None, limiter=None), Row("b", "sm_120", "e", error="no")]
    )
    head, first, amd, broken = lines.splitlines()
    assert head.split()[:3] == ["variant", "for", "registers"]
    assert first.split() == ["a", "sm_90", "64", "0", "0", "4", "50%", "registers", "128", "bits", "8"]
    assert amd.split()[6:8] == ["–", "–"]
    assert broken.split() == ["b", "sm_120", "no"]
